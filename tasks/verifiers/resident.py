"""The verifier processes of this process: started once, found again by every stage that scores."""

from tasks.runtime import residents
from tasks.verifiers.config import ScoringConfig
from tasks.verifiers.pool import VerifierPool


def resident_pool(config: ScoringConfig) -> VerifierPool:
    """The running pool of these settings; started when there is none.

    Raises:
        CannotStart: a verifier lacks what it needs: a library, the function that it names, the key of its endpoint.
    """
    return residents.get(
        "verifiers",
        config.model_dump_json(),
        lambda: VerifierPool(
            config.verifiers, config.num_workers, config.row_deadline_seconds, config.max_failed_share
        ),
    )
