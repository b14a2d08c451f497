"""What a call carries besides its request message."""

import hashlib
from dataclasses import dataclass, field

from router_svc.admission.permit import Permit
from router_svc.tracing.call import Call


@dataclass(frozen=True, slots=True)
class CallContext:
    """Identity and limits of one call, over HTTP or gRPC.

    `request_id` is the client's x-request-id or made up; `traceparent` the W3C trace context or "";
    `deadline` a time.monotonic() instant in seconds or None; `tenant` who authenticated, or "";
    `permit` what of the tenant's limits the call may take; `call` what becomes known of it.
    """

    request_id: str
    traceparent: str = ""
    deadline: float | None = None
    tenant: str = ""
    permit: Permit = field(default_factory=Permit, repr=False, compare=False)
    call: Call = field(default_factory=Call, repr=False, compare=False)

    def salt(self, wanted: str) -> str:
        """The cache salt of a request that asks for `wanted`: no two tenants have one in common.

        So a tenant learns nothing from how fast a prompt is answered that another has sent.
        """
        if not self.tenant:
            return wanted
        # A tenant's name has no NUL, so each pair is a text of its own.
        return hashlib.sha256(f"{self.tenant}\0{wanted}".encode()).hexdigest()
