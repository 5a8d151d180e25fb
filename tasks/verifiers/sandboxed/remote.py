"""Stand-ins, in the tests' process, for what lives in the candidate's: each use of one is a request and a reply.

A stand-in compares with nothing and is neither true nor false: an object of the program's own class can not decide a test.
"""

import builtins
import contextlib
import functools
import json
import marshal
from collections.abc import Callable, Iterator
from typing import Any

from tasks.verifiers.sandboxed.values import Codec, NotPlain, TooLarge


class RemoteFailure(Exception):
    """The program raised what is no built-in exception, or gave what is no value."""


class Untestable(BaseException):
    """The tests need what can not be had: their own fault. Not an Exception, so that no test catches it."""


class Connection:
    """Sends a request to the candidate and decodes its reply."""

    def __init__(self, exchange: Callable[[str], str]) -> None:
        self._exchange = exchange
        self._codec = Codec(self._number_of, lambda number: Remote(self, number))
        self.num_requests = 0
        self._raised: list[BaseException] = []

    def request(self, operation: str, *arguments: Any) -> Any:
        """The value of the reply, or the program's exception raised."""
        try:
            encoded = self._codec.encode(arguments)
        except TooLarge as error:  # it may come from the program
            raise self._noted(RemoteFailure(f"a test passes {error}")) from error
        except NotPlain as error:
            raise Untestable(f"a test passes what can not be sent: {error}") from error
        self.num_requests += 1
        line = self._exchange(marshal.dumps({"operation": operation, "arguments": encoded}).hex())
        try:
            reply = json.loads(line)
            if "value" in reply:
                return self._codec.decode(reply["value"])
            name, message = str(reply["raised"]), str(reply["message"])
        except (ValueError, TypeError, KeyError, RecursionError, NotPlain) as error:
            raise self._noted(RemoteFailure(f"not a reply: {type(error).__name__}")) from error
        raise self._noted(exception(name, message))

    def _noted(self, error: Exception) -> Exception:
        self._raised.append(error)
        return error

    def has_raised(self, error: BaseException) -> bool:
        """Whether the program raised this, and not the tests themselves."""
        return any(error is each for each in self._raised)

    def _number_of(self, value: Any) -> int:
        if type(value) is RemoteName:
            value = object.__getattribute__(value, "_looked_up")()
        if type(value) is not Remote:
            raise NotPlain(f"a {type(value).__name__}")
        return int(object.__getattribute__(value, "_number"))


def exception(name: str, message: str) -> Exception:
    """A built-in exception by its name; RemoteFailure for any other, and for those that end processes."""
    kind = getattr(builtins, name, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return RemoteFailure(f"{name}: {message}")
    for make in (functools.partial(kind, message), functools.partial(kind.__new__, kind)):  # a few take more
        with contextlib.suppress(TypeError):
            return make()
    return RemoteFailure(f"{name}: {message}")


class Remote:
    """An object of the candidate's process."""

    __hash__ = None  # type: ignore[assignment]  # equal to nothing, so it can be no key

    def __init__(self, connection: Connection, number: int) -> None:
        object.__setattr__(self, "_connection", connection)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return _request(self, "call", arguments, named)

    def __getattr__(self, name: str) -> Any:
        return _request(self, "get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        _request(self, "set", name, value)

    def __iter__(self) -> Iterator[Any]:
        iterator = _request(self, "iter")
        if type(iterator) is not Remote:
            raise RemoteFailure("an iterator that is none")
        while True:
            try:
                item = _request(iterator, "next")
            except StopIteration:
                return
            yield item

    def __len__(self) -> int:
        length: Any = _request(self, "len")
        if type(length) is not int:
            raise RemoteFailure("a length that is no int")
        return length

    def __getitem__(self, key: Any) -> Any:
        return _request(self, "item", key)

    def __eq__(self, other: object) -> bool:
        raise RemoteFailure("the program's result is no plain value, so it is compared with nothing")

    def __bool__(self) -> bool:
        raise RemoteFailure("the program's result is no plain value, so it is neither true nor false")


def _request(remote: Remote, operation: str, *arguments: Any) -> Any:
    connection: Connection = object.__getattribute__(remote, "_connection")
    return connection.request(operation, remote, *arguments)


class RemoteName(Remote):
    """A name of the program, looked up when it is first used: a program without it fails then, not before."""

    def __init__(self, connection: Connection, name: str) -> None:
        super().__init__(connection, -1)
        object.__setattr__(self, "_name", name)

    def _looked_up(self) -> Remote:
        if self._number < 0:
            found = self._connection.request("name", self._name)
            if type(found) is not Remote:
                raise RemoteFailure(f"{self._name} is no function of the program")
            object.__setattr__(self, "_number", object.__getattribute__(found, "_number"))
        return Remote(self._connection, self._number)
