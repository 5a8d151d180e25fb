"""What storage refuses, each with the cure in its message."""


class StorageError(Exception):
    """Base of everything that storage refuses."""


class ProvenanceMismatch(StorageError):
    """A finished stage stands where another was expected: its inputs or settings differ."""


class CorruptArtifact(StorageError):
    """Bytes on disk are not the bytes that were committed."""


class UnknownFormat(StorageError):
    """Whole bytes, written by a version of this code that lays them out in another way."""


class DiskFull(StorageError):
    """A disk that a run writes to has no room left."""


class ReadOnlyStore(StorageError):
    """The store became read-only while a run wrote to it."""


class LineageBusy(StorageError):
    """Another live process holds the lineage."""


class LostLock(StorageError):
    """The lineage was taken over by another run; this one may no longer commit."""


class RecipeConflict(StorageError):
    """The recipe contradicts the one recorded for the lineage."""


class UnknownLineage(StorageError):
    """No lineage of that name stands in the store."""


class PrunedCheckpoint(StorageError):
    """The weights were removed to save space; the record of them stays."""


class OutsideStore(StorageError):
    """A reference or a name leads out of the store."""
