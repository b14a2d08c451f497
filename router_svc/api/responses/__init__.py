"""OpenAI's Responses over the chat pipeline: items in, a chat request through it, items out.

    CreateResponseRequest ─ request.py, items.py ─► CreateChatCompletionRequest
                                                          │ Conversation
    Response ◄─ events folded ─ answer.py ◄────── AnswerDelta …

The whole answer is the response of the stream's last event, so the two cannot differ.
"""
