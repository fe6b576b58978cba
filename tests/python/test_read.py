"""Query, QueryNewest and GetInboxIds."""

import unittest

import grpc

from world import (
    FACTS, SOON, Case, at, envelope, fixture, identity, ids, inbox_topic, key_package_topic, new_key, topic, welcome,
    welcome_topic,
)


class Pages(Case):
    def test_pages_join_without_a_hole(self):
        key = new_key()
        given = [self.at.put(welcome(key, bytes([number]))) for number in range(7)]
        found, after = [], 0
        while True:
            page = self.at.page(at(welcome_topic(key), after), limit=3)
            self.assertLessEqual(len(page.envelopes), 3)
            found += ids(page.envelopes)
            if not page.continuation.has_more:
                break
            self.assertTrue(page.envelopes)
            after = found[-1]
        self.assertEqual(found, given)

    def test_a_repeated_topic_is_read_from_its_lowest_cursor(self):
        key = new_key()
        given = [self.at.put(welcome(key, bytes([number]))) for number in range(3)]
        page = self.at.page(at(welcome_topic(key), given[1]), at(welcome_topic(key), given[0]))
        self.assertEqual(ids(page.envelopes), given[1:])

    def test_topics_that_cannot_be_read(self):
        for bad in (topic(9, new_key()), topic(1, new_key()[:31]), key_package_topic(new_key()), envelope.Topic()):
            with self.subTest(bad.topic.hex()), self.fails(grpc.StatusCode.INVALID_ARGUMENT):
                self.at.page(at(bad))

    def test_newest_is_matched_by_topic(self):
        keys = [new_key() for _ in range(3)]
        for key in keys[:2]:
            self.at.put(welcome(key, b"older"))
        newest = {key: self.at.put(welcome(key, b"newer")) for key in keys[:2]}
        topics = [welcome_topic(key) for key in keys]
        for full in (False, True):
            results = self.at.newest(*topics, full=full)
            found = {one.topic.topic[1:]: one for one in results}
            self.assertEqual({key: one.meta.cursor.sequence_id for key, one in found.items()}, newest)
            for key, one in found.items():
                self.assertEqual(one.HasField("envelope"), full)
                if full:
                    self.assertEqual(one.envelope, welcome(key, b"newer"))

    def test_a_key_package_is_found_as_the_newest(self):
        self.at.publish(fixture("key_package"))
        (found,) = self.at.newest(key_package_topic(bytes.fromhex(FACTS["installation"])), full=True)
        self.assertEqual(found.envelope, fixture("key_package"))


class SmallPages(Case):
    server = "LIMITED"

    def test_limits(self):
        key = new_key()
        for number in range(5):
            self.at.put(welcome(key, bytes([number])))
        self.assertEqual(len(self.at.page(at(welcome_topic(key))).envelopes), 2)
        page = self.at.page(at(welcome_topic(key)), limit=100)
        self.assertEqual((len(page.envelopes), page.continuation.has_more), (4, True))
        with self.fails(grpc.StatusCode.INVALID_ARGUMENT):
            self.at.page(*(at(welcome_topic(new_key())) for _ in range(4)))

    def test_a_response_over_the_byte_ceiling(self):
        keys = [new_key() for _ in range(5)]
        for key in keys:
            self.at.put(welcome(key, bytes(60_000)))
        with self.fails(grpc.StatusCode.OUT_OF_RANGE):
            self.at.newest(*(welcome_topic(key) for key in keys), full=True)


class Inboxes(Case):
    def lookup(self, *requests):
        one = identity.GetInboxIdsRequest.Request
        request = identity.GetInboxIdsRequest(
            requests=[one(identifier=text, identifier_kind=kind) for text, kind in requests]
        )
        return self.at.identity.GetInboxIds(request, timeout=SOON).responses

    def test_known_and_unknown_identifiers(self):
        self.at.publish(fixture("registration"))
        address, stranger = FACTS["address"], FACTS["stranger"]
        found = self.lookup((address, 1), (stranger, 1), (address, 0), (address, 2))
        self.assertEqual([one.identifier for one in found], [address, stranger, address, address])
        self.assertEqual([one.identifier_kind for one in found], [1, 1, 0, 2])
        inboxes = [one.inbox_id if one.HasField("inbox_id") else None for one in found]
        self.assertEqual(inboxes, [FACTS["inbox"], None, FACTS["inbox"], None])

    def test_too_many_identifiers(self):
        with self.fails(grpc.StatusCode.INVALID_ARGUMENT):
            self.lookup(*((FACTS["stranger"], 1) for _ in range(251)))

    def test_an_update_is_read_from_its_inbox(self):
        self.at.publish(fixture("registration"))
        self.at.publish(fixture("addition"))
        page = self.at.page(at(inbox_topic(FACTS["inbox"])))
        updates = [one.envelope for one in page.envelopes]
        self.assertEqual(updates[:2], [fixture("registration"), fixture("addition")])

    def test_contract_wallets_have_no_verifier(self):
        signature = identity.VerifySmartContractWalletSignaturesRequest.Signature(
            account_id="eip155:1:" + FACTS["address"], hash=bytes(32), signature=bytes(65)
        )
        request = identity.VerifySmartContractWalletSignaturesRequest(signatures=[signature])
        with self.fails(grpc.StatusCode.UNAVAILABLE):
            self.at.identity.VerifySmartContractWalletSignatures(request, timeout=SOON)


if __name__ == "__main__":
    unittest.main()
