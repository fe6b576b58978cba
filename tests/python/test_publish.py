"""Publish: what is stored, and what is answered."""

import unittest

import grpc

from world import (
    FACTS, SOON, Case, at, commit_log_topic, envelope, fixture, group_topic, ids, inbox_topic, key_package_topic,
    new_key, publish, sha256, welcome, welcome_topic,
)

RETENTION_NS = 90 * 24 * 60 * 60 * 1_000_000_000


class Publish(Case):
    def test_every_kind_is_stored_under_its_topic(self):
        key = bytes.fromhex(FACTS["installation"])
        kinds = [
            ("application", group_topic(), True, False),
            ("commit", group_topic(), False, True),
            ("proposal", group_topic(), False, True),
            ("welcome", welcome_topic(bytes([1]) * 32), True, False),
            ("key_package", key_package_topic(key), True, False),
            ("registration", inbox_topic(FACTS["inbox"]), False, False),
            ("commit_log", commit_log_topic(), False, False),
        ]
        envelopes = [fixture(name) for name, *_ in kinds]
        metas = self.at.publish(*envelopes)
        self.assertEqual(len(metas), len(kinds))
        for (name, topic, expires, handshake), sent, meta in zip(kinds, envelopes, metas):
            with self.subTest(name):
                self.assertEqual(meta.topic, topic)
                self.assertEqual(meta.message_hash.sha256, sha256(sent))
                self.assertEqual(meta.is_commit_or_proposal, handshake)
                self.assertGreater(meta.server_ns, 0)
                self.assertEqual(meta.expiry_ns, meta.server_ns + RETENTION_NS if expires else 0)
        # In request order, above zero.
        given = [meta.cursor.sequence_id for meta in metas]
        self.assertGreater(min(given), 0)

    def test_bytes_come_back_as_they_went(self):
        sent = fixture("welcome")
        self.at.publish(sent)
        page = self.at.page(at(welcome_topic(bytes([1]) * 32)))
        self.assertIn(sent, [one.envelope for one in page.envelopes])

    def test_a_duplicate_is_answered_with_what_was_stored(self):
        key = new_key()
        first = self.at.publish(welcome(key, b"once"))
        again = self.at.publish(welcome(key, b"once"), welcome(key, b"other"), welcome(key, b"once"))
        self.assertEqual(again[0], first[0])
        self.assertEqual(again[2], first[0])
        self.assertGreater(again[1].cursor.sequence_id, first[0].cursor.sequence_id)
        self.assertEqual(len(self.at.page(at(welcome_topic(key))).envelopes), 2)

    def test_what_decodes_alike_hashes_alike(self):
        sent = welcome(new_key())
        v1 = sent.welcome_message.v1
        # The same fields, the last one first, which protobuf's own encoder wouldn't write.
        metadata = bytes([5 << 3 | 2, len(v1.welcome_metadata)]) + v1.welcome_metadata
        rest = envelope.WelcomeMessage.V1()
        rest.CopyFrom(v1)
        rest.ClearField("welcome_metadata")
        nested = metadata + rest.SerializeToString()
        for number in (1, 2, 1):
            nested = bytes([number << 3 | 2, len(nested)]) + nested
        self.assertEqual(publish.PublishRequest.FromString(nested).envelopes[0], sent)
        raw = self.at.channel.unary_unary(
            "/xmtp.backend.v1.PublishService/Publish", response_deserializer=publish.PublishResponse.FromString
        )
        (meta,) = raw(nested, timeout=SOON).envelope_metas
        self.assertEqual(meta.message_hash.sha256, sha256(sent))
        self.assertEqual(self.at.publish(sent)[0], meta)

    def test_a_later_publish_has_greater_ids_whatever_the_topic(self):
        given = [self.at.put(welcome(new_key())) for _ in range(10)]
        self.assertEqual(given, sorted(set(given)))

    def test_an_empty_request_stores_nothing(self):
        self.assertEqual(len(self.at.publish()), 0)


class Refused(Case):
    def test_malformed_payload(self):
        key = new_key()
        bad = [
            envelope.ClientEnvelope(),
            envelope.ClientEnvelope(group_message=envelope.GroupMessage(data=b"no MLSMessage")),
            envelope.ClientEnvelope(welcome_message=envelope.WelcomeMessage()),
            welcome(key[:31]),
            envelope.ClientEnvelope(key_package=envelope.KeyPackage(key_package_tls_serialized=b"none")),
            envelope.ClientEnvelope(commit_log_entry=envelope.CommitLogEntry(serialized_commit_log_entry=b"\xff")),
        ]
        for one in bad:
            with self.subTest(str(one)):
                self.refuses("MALFORMED_PAYLOAD", 1, welcome(key), one)
        # All or none.
        self.assertEqual(len(self.at.page(at(welcome_topic(key))).envelopes), 0)

    def test_invalid_key_package(self):
        self.refuses("INVALID_KEY_PACKAGE", 0, fixture("expired_key_package"))

    def test_invalid_identity_update(self):
        self.refuses("INVALID_IDENTITY_UPDATE", 0, fixture("orphaned_addition"))

    def test_one_update_per_inbox_and_request(self):
        self.at.publish(fixture("registration"))
        self.refuses("INVALID_IDENTITY_UPDATE", 1, fixture("addition"), fixture("other_addition"))

    def test_invalid_signature(self):
        self.at.publish(fixture("registration"))
        forged = fixture("other_addition")
        signature = forged.identity_update.actions[0].add.new_member_signature.installation_key
        signature.bytes = bytes([signature.bytes[0] ^ 1]) + signature.bytes[1:]
        self.refuses("INVALID_SIGNATURE", 0, forged)

    def test_the_lowest_failing_index_is_named(self):
        self.refuses(
            "INVALID_KEY_PACKAGE", 1, welcome(new_key()), fixture("expired_key_package"), envelope.ClientEnvelope()
        )


class RefusedForSize(Case):
    server = "LIMITED"

    def test_envelope(self):
        self.refuses("TOO_LARGE", 1, welcome(new_key()), welcome(new_key(), bytes(64 * 1024)))

    def test_topics(self):
        self.refuses("TOO_LARGE", None, *(welcome(new_key()) for _ in range(4)))

    def test_request_on_the_wire(self):
        key = new_key()
        envelopes = [welcome(key, bytes([number]) * 60_000) for number in range(5)]
        with self.fails(grpc.StatusCode.OUT_OF_RANGE):
            self.at.publish(*envelopes)
        # The caller learns by a Query what was stored.
        self.assertEqual(ids(self.at.page(at(welcome_topic(key))).envelopes), [])

    def test_request_that_only_its_encoding_makes_too_large(self):
        # An enum value of -1 in five bytes, which every encoder writes in ten.
        key = new_key()
        v1 = bytes([1 << 3 | 2, 32]) + key + bytes([4 << 3]) + b"\xff\xff\xff\xff\x0f"
        small = b"\x12" + bytes([len(v1) + 2]) + b"\x0a" + bytes([len(v1)]) + v1
        small = b"\x0a" + bytes([len(small)]) + small
        limit = 256 * 1024
        fill = publish.PublishRequest(envelopes=[welcome(key, bytes([number]) * 60_000) for number in range(4)])
        last = fill.envelopes.add()
        last.CopyFrom(welcome(key, b""))
        last.welcome_message.v1.data = bytes(limit - len(small) - fill.ByteSize() - 9)
        request = fill.SerializeToString() + small
        # The lengths around `data` grow with it.
        last.welcome_message.v1.data = bytes(len(last.welcome_message.v1.data) + limit - len(request))
        request = fill.SerializeToString() + small
        self.assertEqual(len(request), limit)
        raw = self.at.channel.unary_unary("/xmtp.backend.v1.PublishService/Publish")
        with self.fails(grpc.StatusCode.INVALID_ARGUMENT, "bytes encoded"):
            raw(request, timeout=SOON)


if __name__ == "__main__":
    unittest.main()
