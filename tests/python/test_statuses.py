"""The codes that a request alone doesn't bring about, and the health service."""

import time
import unittest

import grpc
from grpc_health.v1 import health_pb2 as health, health_pb2_grpc

from world import (
    FACTS, SIGNALS, SOON, Case, at, envelope, fixture, group_topic, inbox_topic, new_key, publish, query, subscribe,
    welcome, welcome_topic,
)

SERVICES = ["", *(f"xmtp.backend.v1.{name}Service" for name in ("Query", "Publish", "Subscribe", "Identity"))]


class Aborted(Case):
    def test_racing_updates_of_one_inbox(self):
        """Of publishes that judged the same history one is stored and the others are told to rebuild."""
        self.at.publish(fixture("racing_registration"))
        additions = [fixture(f"racing_addition_{number}") for number in range(FACTS["racing_additions"])]
        stored, aborted = 0, []
        while additions and not aborted:
            racing = [additions.pop() for _ in range(4)]
            requests = [publish.PublishRequest(envelopes=[one]) for one in racing]
            calls = [self.at.publishing.Publish.future(request, timeout=SOON) for request in requests]
            for one, call in zip(racing, calls):
                if call.exception() is None:
                    stored += 1
                else:
                    self.assertEqual(call.code(), grpc.StatusCode.ABORTED, call.details())
                    aborted.append(one)
        self.assertTrue(aborted, "no publish lost a race")
        topic = at(inbox_topic(FACTS["racing_inbox"]))
        self.assertEqual(len(self.at.page(topic, limit=1000).envelopes), 1 + stored)
        # Nothing in these updates depends on what came between: the same bytes do on the next try.
        for one in aborted:
            self.at.put(one)
        self.assertEqual(len(self.at.page(topic, limit=1000).envelopes), 1 + stored + len(aborted))


class Unimplemented(Case):
    def test_compressed_requests(self):
        request = publish.PublishRequest(envelopes=[welcome(new_key(), bytes(10_000))])
        with self.fails(grpc.StatusCode.UNIMPLEMENTED):
            self.at.publishing.Publish(request, timeout=SOON, compression=grpc.Compression.Gzip)

    def test_compressed_streams(self):
        update = subscribe.SubscribeRequest.Update(id=1, adds=[at(welcome_topic(bytes(32)))])
        frames = iter([subscribe.SubscribeRequest(update=update)])
        call = self.at.subscriptions.Subscribe(frames, timeout=SOON, compression=grpc.Compression.Gzip)
        with self.fails(grpc.StatusCode.UNIMPLEMENTED):
            list(call)

    def test_unknown_methods_and_services(self):
        for method in ("/xmtp.backend.v1.QueryService/Get", "/xmtp.backend.v1.GetService/Get"):
            with self.subTest(method), self.fails(grpc.StatusCode.UNIMPLEMENTED):
                self.at.channel.unary_unary(method)(b"", timeout=SOON)


class Internal(Case):
    server = "CORRUPT"

    def setUp(self):
        super().setUp()
        self.broken = welcome_topic(bytes([1]) * 32)

    def test_reads_of_a_broken_value(self):
        with self.fails(grpc.StatusCode.INTERNAL):
            self.at.page(at(self.broken))
        with self.fails(grpc.StatusCode.INTERNAL):
            self.at.newest(self.broken, full=True)
        # Metadata is whole, and so is every other topic.
        self.assertEqual(len(self.at.newest(self.broken)), 1)
        self.assertEqual(len(self.at.page(at(group_topic())).envelopes), 0)

    def test_streams_over_a_broken_value(self):
        with self.at.fixed(at(self.broken)) as stream:
            self.assertEqual(next(stream).WhichOneof("response"), "started")
            with self.fails(grpc.StatusCode.INTERNAL):
                next(stream)
        with self.at.stream() as stream:
            stream.read("started")
            stream.update(1, adds=[at(self.broken)])
            stream.read("applied")
            with self.fails(grpc.StatusCode.INTERNAL):
                next(stream.call)

    def test_an_update_of_a_broken_log(self):
        update = (SIGNALS / "addition_to_corrupt_log.bin").read_bytes()
        with self.fails(grpc.StatusCode.INTERNAL):
            self.at.publish(envelope.ClientEnvelope.FromString(update))


class Health(Case):
    def test_check(self):
        stub = health_pb2_grpc.HealthStub(self.at.channel)
        for service in SERVICES:
            with self.subTest(service):
                found = stub.Check(health.HealthCheckRequest(service=service), timeout=SOON)
                self.assertEqual(found.status, health.HealthCheckResponse.SERVING)
        with self.fails(grpc.StatusCode.NOT_FOUND):
            stub.Check(health.HealthCheckRequest(service="nobody"), timeout=SOON)


class Shutdown(Case):
    server = "DOOMED"

    def test_what_clients_see_of_it(self):
        key = new_key()
        put = self.at.put(welcome(key))
        watch = health_pb2_grpc.HealthStub(self.at.channel).Watch(health.HealthCheckRequest(), timeout=SOON)
        self.assertEqual(next(watch).status, health.HealthCheckResponse.SERVING)
        with self.at.stream() as native, self.at.fixed(at(welcome_topic(key), put)) as fixed:
            native.read("started")
            self.assertEqual(next(fixed).WhichOneof("response"), "started")
            (SIGNALS / "stop").touch()
            self.assertEqual(next(watch).status, health.HealthCheckResponse.NOT_SERVING)
            for stream in (native.call, fixed):
                with self.fails(grpc.StatusCode.UNAVAILABLE, "shutting down"):
                    next(stream)
        # Told, and let go: a watch must not hold up the end.
        with self.assertRaises(StopIteration):
            next(watch)
        # What comes before the connection itself is told is still served.
        deadline = time.monotonic() + SOON
        with self.fails(grpc.StatusCode.UNAVAILABLE):
            while time.monotonic() < deadline:
                self.at.put(welcome(key, b"too late"))
        with self.fails(grpc.StatusCode.UNAVAILABLE):
            self.at.query.Query(query.QueryRequest(), timeout=SOON)


if __name__ == "__main__":
    unittest.main()
