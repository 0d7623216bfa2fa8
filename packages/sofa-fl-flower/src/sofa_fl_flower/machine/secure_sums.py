"""A site's part in secure aggregation: which sums it allows, and what it sends for them."""

from __future__ import annotations

from functools import cached_property

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from sofa_fl.engine.base import Task
from sofa_fl.engine.task_codec import Header
from sofa_fl.models.flat import Vector
from sofa_fl_flower.machine.site_records import SecureAggregationConfig, SumRecord
from sofa_fl_flower.masked_sum.masks import public_of, sum_key_of
from sofa_fl_flower.masked_sum.member import SEALED_SIZE, masked, reveal
from sofa_fl_flower.masked_sum.plan import (
    SumPlan,
    flaw_of_keys,
    flaw_of_plan,
    flaw_of_survivors,
    survivors_of,
)
from sofa_fl_flower.transport.message_checks import RefusalError
from sofa_fl_flower.transport.run_setup import RunSetup, work_digest
from sofa_fl_flower.transport.wire_message import MessageBuilder, WireMessage


class SecureSums:
    """The sums of one site.

    Args:
        secret: The site's key.
        record: What it has sent so far.
        num_samples: How many samples it trains on.
    """

    def __init__(
        self, config: SecureAggregationConfig, secret: bytes, record: SumRecord, num_samples: int
    ) -> None:
        self.config, self.secret, self.record = config, secret, record
        self.num_samples = num_samples

    @cached_property
    def key(self) -> X25519PrivateKey:
        return sum_key_of(self.secret)

    @cached_property
    def public(self) -> str:
        return public_of(self.key)

    def begin(self, header: Header, task: Task, setup: RunSetup) -> SumPlan | None:
        """Return the sum that a training is for, if it is for one; a model leaves for it once.

        Raises:
            RefusalError: The policy does not allow it, or does not allow a model in the clear.
        """
        if header.get("sum") is None:
            self.record.count_clear(self.config.max_clear_models)
            return None
        plan = self._plan(header["sum"])
        if plan.sizes[plan.keys.index(self.public)] != self.num_samples:
            raise RefusalError(
                f"this site's weight in a sum is its {self.num_samples} training samples, got "
                f"{plan.sizes[plan.keys.index(self.public)]}"
            )
        if plan.work != work_digest(task, setup):
            raise RefusalError(
                "all members of a sum must train the same model in the same way, but this site "
                "was asked for something else"
            )
        self.record.begin(plan.digest.hex())
        return plan

    def masked(self, plan: SumPlan, params: Vector, builder: MessageBuilder) -> dict[str, str]:
        """Mask a model; return the names of what is sent of it."""
        try:
            found = masked(plan, self.key, params.cpu().numpy())
        except ValueError as error:
            raise RefusalError(f"this site's model cannot be part of a sum: {error}") from None
        return {"masked": builder.add(found.numbers), "shares": builder.add(found.shares)}

    def reveal(self, header: Header, message: WireMessage, builder: MessageBuilder) -> Header:
        """Help to unmask a sum; return the names of what is sent for that."""
        plan, survivors = self._plan(header.get("sum")), survivors_of(header)
        member = plan.keys.index(self.public)
        if (flaw := flaw_of_survivors(plan, survivors, member)) is not None:
            raise RefusalError(f"this site does not unmask this sum: {flaw}")
        shares = message.array(header.get("shares"), "uint8", (len(survivors), SEALED_SIZE))
        self.record.reveal(plan.digest.hex(), survivors)
        try:
            found = reveal(plan, self.key, survivors, shares)
        except ValueError as error:
            raise RefusalError(f"this site does not unmask this sum: {error}") from None
        return {
            "shares": builder.add(found.shares),
            "seeds": builder.add(found.seeds),
            "unread": list(found.unread),
        }

    def _plan(self, values: object) -> SumPlan:
        """Read a plan that the policy allows."""
        plan, config = SumPlan.from_dict(values), self.config
        flaw = flaw_of_keys(plan, self.public, config.peers)
        flaw = flaw or flaw_of_plan(plan, config.smallest_cluster)
        if flaw is not None:
            raise RefusalError(f"this site does not take part in this sum: {flaw}")
        return plan
