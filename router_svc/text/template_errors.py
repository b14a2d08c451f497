"""What can go wrong between a conversation and a prompt; every message is fit for the client."""

from __future__ import annotations

_MAX_MESSAGE_CHARACTERS = 500


class TemplateError(ValueError):
    """A conversation that cannot become a prompt. `param` is the field of the request at fault."""

    def __init__(self, message: str, param: str = "messages") -> None:
        super().__init__(message[:_MAX_MESSAGE_CHARACTERS])
        self.param = param


class TemplateRefusedError(TemplateError):
    """The template itself refused the conversation; the message is the template's."""


class TemplateFailedError(TemplateError):
    """The template broke on this conversation, or the conversation does not fit what was asked."""


class TemplateLimitError(TemplateError):
    """The prompt grew too long or took too long to render."""


class TemplateVariableError(TemplateError):
    """A template variable of the request that the server sets itself."""


class TemplateLoadError(TemplateError):
    """A template that cannot be read; the message names where it is from."""
