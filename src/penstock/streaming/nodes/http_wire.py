"""As much of HTTP/1.1 as servers need among themselves: heads of requests and answers, kept-alive connections.

Bodies are sent by ``serving`` (``sendfile``, chunks of the feed) and read by whoever asked.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct

__all__ = [
    "HEAD_ENDS",
    "LONGEST_HEAD",
    "Answer",
    "Head",
    "HttpError",
    "answer_bytes",
    "parse_answer",
    "read_answer",
    "read_head",
    "request_bytes",
]

LONGEST_HEAD = 32 << 10
HEAD_ENDS = b"\r\n\r\n"
REASONS = {
    200: "OK",
    204: "No Content",
    206: "Partial Content",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    416: "Range Not Satisfiable",
}


class HttpError(Exception):
    """Something that is not HTTP, or not the part of it that is spoken here."""


class Head(Struct, frozen=True):
    """A request."""

    method: str
    target: str
    fields: dict[str, str]


class Answer(Struct, frozen=True):
    """The head of an answer."""

    status: int
    fields: dict[str, str]


async def _lines(reader: asyncio.StreamReader) -> list[str] | None:
    """The lines of a head, or None where the connection ended before one."""
    try:
        text = await reader.readuntil(HEAD_ENDS)
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise HttpError("the connection broke off within a head") from None
    except asyncio.LimitOverrunError:
        raise HttpError("the head is too long") from None
    return _split(text)


def _split(text: bytes) -> list[str]:
    if len(text) > LONGEST_HEAD:
        raise HttpError("the head is too long")
    return text.decode("latin-1").split("\r\n")[:-2]


def _fields(lines: list[str]) -> dict[str, str]:
    fields = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip():
            raise HttpError(f"not a field: {line[:80]!r}")
        fields[name.lower()] = value.strip()
    return fields


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next request of a connection; None at its end."""
    lines = await _lines(reader)
    if lines is None:
        return None
    words = lines[0].split(" ")
    if len(words) != 3 or words[2] != "HTTP/1.1":
        raise HttpError(f"not a request: {lines[0][:80]!r}")
    fields = _fields(lines[1:])
    if fields.get("content-length", "0") != "0" or "transfer-encoding" in fields:
        raise HttpError("requests have no body here")
    return Head(words[0], words[1], fields)


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """The head of the answer to a request."""
    lines = await _lines(reader)
    if lines is None:
        raise ConnectionResetError("the server hung up")
    return _answer(lines)


def parse_answer(text: bytes) -> Answer:
    """The head of an answer, of which all has come, with its empty line."""
    return _answer(_split(text))


def _answer(lines: list[str]) -> Answer:
    words = lines[0].split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
        raise HttpError(f"not an answer: {lines[0][:80]!r}")
    return Answer(int(words[1]), _fields(lines[1:]))


def request_bytes(host: str, target: str, token: str, fields: dict[str, str] | None = None) -> bytes:
    """A request, with the token."""
    lines = [f"GET {target} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {token}"]
    lines += [f"{name}: {value}" for name, value in (fields or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def answer_bytes(status: int, fields: dict[str, str]) -> bytes:
    """The head of an answer."""
    lines = [f"HTTP/1.1 {status} {REASONS[status]}", *(f"{name}: {value}" for name, value in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
