"""Servers, envelopes and streams for the tests of this folder.

crates/backend/tests/python/main.rs starts the servers and names them in the environment.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import queue
import secrets
import unittest

import grpc
from grpc_status import rpc_status

from xmtp.backend.v1 import (
    envelope_pb2 as envelope,
    identity_pb2 as identity,
    identity_pb2_grpc,
    publish_pb2 as publish,
    publish_pb2_grpc,
    query_pb2 as query,
    query_pb2_grpc,
    subscribe_pb2 as subscribe,
    subscribe_pb2_grpc,
)

FIXTURES = pathlib.Path(os.environ["HIGHWATER_FIXTURES"])
SIGNALS = pathlib.Path(os.environ["HIGHWATER_SIGNALS"])
FACTS = json.loads((FIXTURES / "facts.json").read_text())

# Longer than anything that should happen takes.
SOON = 20.0


def fixture(name):
    """An envelope that the Rust side made."""
    return envelope.ClientEnvelope.FromString((FIXTURES / f"{name}.bin").read_bytes())


def new_key():
    """An installation key that no other test uses."""
    return secrets.token_bytes(32)


def welcome(key, data=b"data"):
    v1 = envelope.WelcomeMessage.V1(
        installation_key=key, data=data, hpke_public_key=bytes(32), wrapper_algorithm=1, welcome_metadata=b"meta"
    )
    return envelope.ClientEnvelope(welcome_message=envelope.WelcomeMessage(v1=v1))


def topic(kind, identifier):
    return envelope.Topic(topic=bytes([kind]) + identifier)


def group_topic():
    return topic(0, bytes.fromhex(FACTS["group"]))


def welcome_topic(key):
    return topic(1, key)


def inbox_topic(inbox):
    return topic(2, bytes.fromhex(inbox))


def key_package_topic(key):
    return topic(3, key)


def commit_log_topic():
    return topic(4, bytes.fromhex(FACTS["group"]))


def at(of, after=0):
    """A topic and the position to read it from; 0 is written as an absent cursor."""
    cursor = envelope.Cursor(sequence_id=after) if after else None
    return envelope.TopicQuery(topic=of, cursor=cursor)


def ids(envelopes):
    return [one.meta.cursor.sequence_id for one in envelopes]


def sha256(of):
    return hashlib.sha256(of.SerializeToString()).digest()


class Server:
    """The stubs of one server over one channel."""

    def __init__(self, name):
        options = [
            ("grpc.max_receive_message_length", 64 * 1024 * 1024),
            ("grpc.max_send_message_length", 64 * 1024 * 1024),
            ("grpc.enable_http_proxy", 0),
        ]
        self.channel = grpc.insecure_channel(os.environ[f"HIGHWATER_{name}"], options=options)
        self.query = query_pb2_grpc.QueryServiceStub(self.channel)
        self.publishing = publish_pb2_grpc.PublishServiceStub(self.channel)
        self.identity = identity_pb2_grpc.IdentityServiceStub(self.channel)
        self.subscriptions = subscribe_pb2_grpc.SubscribeServiceStub(self.channel)

    def publish(self, *envelopes):
        request = publish.PublishRequest(envelopes=envelopes)
        return self.publishing.Publish(request, timeout=SOON).envelope_metas

    def put(self, one):
        """Publishes one envelope and gives its id."""
        (meta,) = self.publish(one)
        return meta.cursor.sequence_id

    def page(self, *queries, limit=0):
        return self.query.Query(query.QueryRequest(queries=queries, limit=limit), timeout=SOON)

    def newest(self, *topics, full=False):
        request = query.QueryNewestRequest(topics=topics, include_full_envelope=full)
        return self.query.QueryNewest(request, timeout=SOON).results

    def stream(self):
        return contextlib.closing(Stream(self.subscriptions))

    @contextlib.contextmanager
    def fixed(self, *queries):
        """A static stream, as an iterator of responses."""
        request = subscribe.SubscribeStaticRequest(topics=queries)
        call = self.subscriptions.SubscribeStatic(request, timeout=SOON)
        try:
            yield call
        finally:
            call.cancel()


class Stream:
    """A bidirectional stream whose frames are sent and read one by one."""

    def __init__(self, stub):
        self.outgoing = queue.SimpleQueue()
        self.call = stub.Subscribe(iter(self.outgoing.get, None), timeout=SOON)

    def send(self, **request):
        self.outgoing.put(subscribe.SubscribeRequest(**request))

    def update(self, number, adds=(), removes=()):
        self.send(update=subscribe.SubscribeRequest.Update(id=number, adds=adds, removes=removes))

    def half_close(self):
        self.outgoing.put(None)

    def read(self, kind):
        """The next frame, which must be of this kind."""
        frame = next(self.call)
        found = frame.WhichOneof("response")
        if found != kind:
            raise AssertionError(f"{kind} was due and {found} came: {frame}")
        return getattr(frame, kind)

    def messages(self, count):
        """The next envelopes, in however many frames they come."""
        envelopes = []
        while len(envelopes) < count:
            envelopes.extend(self.read("messages").envelopes)
        return envelopes

    def close(self):
        self.half_close()
        self.call.cancel()


class Case(unittest.TestCase):
    """A test with the server of the class's choice."""

    server = "PLAIN"

    def setUp(self):
        self.at = Server(self.server)
        self.addCleanup(self.at.channel.close)

    @contextlib.contextmanager
    def fails(self, code, text=""):
        """What is done inside must end with this status."""
        with self.assertRaises(grpc.RpcError) as caught:
            yield caught
        error = caught.exception
        self.assertEqual(error.code(), code, error.details())
        self.assertIn(text, error.details())

    def refuses(self, reason, index, *envelopes):
        """A publish must be refused for this reason; gives the detail of the status."""
        with self.fails(grpc.StatusCode.INVALID_ARGUMENT) as caught:
            self.at.publish(*envelopes)
        # Checks as well that code and message of the detail are those of the status.
        status = rpc_status.from_call(caught.exception)
        self.assertEqual(len(status.details), 1)
        error = publish.PublishError()
        self.assertTrue(status.details[0].Unpack(error), status.details[0].type_url)
        self.assertEqual(publish.PublishError.Reason.Name(error.reason), f"REASON_{reason}")
        self.assertEqual(error.index if error.HasField("index") else None, index)
        self.assertTrue(error.message)
        return error
