"""Attacks, one a file; each is given only the view that its threat model allows."""

from typing import Any

from codedfl.security.attacks.differencing import Differencing
from codedfl.security.attacks.forwarding import Forwarding
from codedfl.security.attacks.left_kernel import LeftKernel
from codedfl.security.attacks.loss_threshold import LossThreshold
from codedfl.security.attacks.membership import Decomposition, Leverage
from codedfl.security.attacks.null import Null
from codedfl.security.attacks.parity_data import ParityGram, ParitySpan
from codedfl.security.attacks.reused_pad import ReusedPad
from codedfl.security.attacks.server_view import ServerReplies
from codedfl.security.attacks.shared_support import SharedSupport
from codedfl.security.attacks.supports.basis_pursuit import BasisPursuit
from codedfl.security.attacks.supports.column_norms import ColumnNorms, UnexplainedNorms
from codedfl.security.attacks.supports.metzner_kapturowski import MetznerKapturowski
from codedfl.security.attacks.supports.single_row import SingleRow
from codedfl.security.attacks.supports.subspace_matching import SubspaceMatching
from codedfl.security.attacks.two_runs import TwoRuns
from codedfl.security.contract import Attack

__all__ = ["ATTACKS"]

ATTACKS: dict[str, Attack[Any]] = {
    attack.name: attack
    for attack in (
        LeftKernel(),
        SubspaceMatching(),
        MetznerKapturowski(),
        SingleRow(),
        BasisPursuit(),
        ColumnNorms(),
        UnexplainedNorms(),
        Forwarding(),
        SharedSupport(),
        ReusedPad(),
        ServerReplies(),
        Leverage(),
        Decomposition(),
        ParityGram(),
        ParitySpan(),
        Differencing(),
        TwoRuns(),
        LossThreshold(),
        Null(),
    )
}
