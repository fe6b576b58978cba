"""Subscribe: a stream whose topics change while it runs."""

import unittest

import grpc

from world import (
    Case, at, envelope, fixture, group_topic, ids, key_package_topic, new_key, subscribe, welcome, welcome_topic,
)


class Subscribe(Case):
    def test_catch_up_and_then_live(self):
        key, empty = new_key(), new_key()
        given = [self.at.put(welcome(key, bytes([number]))) for number in range(3)]
        with self.at.stream() as stream:
            self.assertEqual(stream.read("started").keepalive_interval_ms, 30_000)
            stream.update(7, adds=[at(welcome_topic(key), given[0]), at(welcome_topic(empty))])
            applied = stream.read("applied")
            self.assertEqual(applied.id, 7)
            targets = [(target.topic, target.through_sequence_id) for target in applied.added_targets]
            self.assertEqual(targets, [(welcome_topic(key), given[2]), (welcome_topic(empty), 0)])
            self.assertEqual(ids(stream.messages(2)), given[1:])
            for number in range(3):
                given.append(self.at.put(welcome(key, bytes([9, number]))))
            live = stream.messages(3)
            self.assertEqual(ids(live), given[3:])
            self.assertEqual(live[0].envelope, welcome(key, bytes([9, 0])))
            self.assertEqual(live[0].meta.topic, welcome_topic(key))
            put = self.at.put(welcome(empty))
            self.assertEqual(ids(stream.messages(1)), [put])

    def test_group_messages_tell_commits(self):
        metas = self.at.publish(fixture("application"), fixture("commit"))
        with self.at.stream() as stream:
            stream.read("started")
            stream.update(1, adds=[at(group_topic())])
            stream.read("applied")
            found = {one.meta.cursor.sequence_id: one for one in stream.messages(2)}
            for meta in metas:
                self.assertEqual(found[meta.cursor.sequence_id].meta, meta)

    def test_additions_and_removals_that_change_nothing(self):
        key = new_key()
        first = self.at.put(welcome(key, b"1"))
        with self.at.stream() as stream:
            stream.read("started")
            stream.update(1, adds=[at(welcome_topic(key))])
            stream.read("applied")
            self.assertEqual(ids(stream.messages(1)), [first])
            # Active already: not read again, whatever the cursor.
            stream.update(2, adds=[at(welcome_topic(key))])
            self.assertEqual(stream.read("applied"), subscribe.SubscribeResponse.Applied(id=2))
            stream.update(3, removes=[welcome_topic(new_key())])
            self.assertEqual(stream.read("applied"), subscribe.SubscribeResponse.Applied(id=3))
            second = self.at.put(welcome(key, b"2"))
            self.assertEqual(ids(stream.messages(1)), [second])

    def test_a_removed_topic_is_silent_until_it_is_added_again(self):
        gone, kept = new_key(), new_key()
        with self.at.stream() as stream:
            stream.read("started")
            stream.update(1, adds=[at(welcome_topic(gone)), at(welcome_topic(kept))])
            stream.read("applied")
            stream.update(2, removes=[welcome_topic(gone)])
            self.assertEqual(stream.read("applied").id, 2)
            silent = self.at.put(welcome(gone))
            heard = self.at.put(welcome(kept))
            self.assertEqual(ids(stream.messages(1)), [heard])
            stream.update(3, adds=[at(welcome_topic(gone))])
            self.assertEqual(stream.read("applied").added_targets[0].through_sequence_id, silent)
            self.assertEqual(ids(stream.messages(1)), [silent])

    def test_updates_are_acknowledged_in_their_order(self):
        topics = [welcome_topic(new_key()) for _ in range(20)]
        with self.at.stream() as stream:
            stream.read("started")
            for number, topic in enumerate(topics, start=1):
                stream.update(number * 3, adds=[at(topic)])
            for number, topic in enumerate(topics, start=1):
                applied = stream.read("applied")
                self.assertEqual(applied.id, number * 3)
                self.assertEqual([target.topic for target in applied.added_targets], [topic])

    def test_a_ping_gets_its_pong(self):
        with self.at.stream() as stream:
            stream.read("started")
            for nonce in (0, 7, 2**64 - 1):
                stream.send(ping=subscribe.Ping(nonce=nonce))
                self.assertEqual(stream.read("pong").nonce, nonce)

    def test_half_close_ends_the_stream_after_what_was_due(self):
        with self.at.stream() as stream:
            stream.read("started")
            stream.send(ping=subscribe.Ping(nonce=5))
            stream.half_close()
            self.assertEqual(stream.read("pong").nonce, 5)
            self.assertEqual(list(stream.call), [])
            self.assertEqual(stream.call.code(), grpc.StatusCode.OK)

    def test_frames_that_are_refused(self):
        key = new_key()
        one = at(welcome_topic(key))
        update = subscribe.SubscribeRequest.Update
        bad = {
            "no request": {},
            "id 0": {"update": update(id=0, adds=[one])},
            "twice": {"update": update(id=1, adds=[one, one])},
            "both": {"update": update(id=1, adds=[one], removes=[welcome_topic(key)])},
            "key packages": {"update": update(id=1, adds=[at(key_package_topic(key))])},
            "no topic": {"update": update(id=1, adds=[at(envelope.Topic())])},
        }
        for name, frame in bad.items():
            with self.subTest(name), self.at.stream() as stream:
                stream.read("started")
                stream.send(**frame)
                with self.fails(grpc.StatusCode.INVALID_ARGUMENT):
                    next(stream.call)

    def test_an_update_id_must_grow(self):
        with self.at.stream() as stream:
            stream.read("started")
            stream.update(5)
            self.assertEqual(stream.read("applied").id, 5)
            stream.update(5)
            with self.fails(grpc.StatusCode.INVALID_ARGUMENT):
                next(stream.call)

    def test_too_many_pings(self):
        with self.at.stream() as stream:
            stream.read("started")
            answered = 0
            with self.fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "Ping"):
                while answered < 10_000:
                    stream.send(ping=subscribe.Ping(nonce=answered))
                    self.assertEqual(stream.read("pong").nonce, answered)
                    answered += 1
            self.assertGreaterEqual(answered, 100)


    def test_too_many_updates(self):
        with self.at.stream() as stream:
            stream.read("started")
            applied = 0
            with self.fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "Update"):
                while applied < 10_000:
                    stream.update(applied + 1)
                    self.assertEqual(stream.read("applied").id, applied + 1)
                    applied += 1
            self.assertGreaterEqual(applied, 100)


class TooManyTopics(Case):
    server = "LIMITED"

    def test_one_more_than_permitted(self):
        topics = [at(welcome_topic(new_key())) for _ in range(4)]
        with self.at.fixed(*topics[:3]) as stream:
            self.assertEqual(len(next(stream).started.targets), 3)
        with self.at.fixed(*topics) as stream, self.fails(grpc.StatusCode.INVALID_ARGUMENT):
            next(stream)
        with self.at.stream() as stream:
            stream.read("started")
            stream.update(1, adds=topics)
            with self.fails(grpc.StatusCode.INVALID_ARGUMENT):
                next(stream.call)


class Challenged(Case):
    server = "IMPATIENT"

    def test_pongs_keep_a_stream_alive(self):
        with self.at.stream() as stream:
            self.assertEqual(stream.read("started").keepalive_interval_ms, 300)
            # Together longer than the wait for one Pong.
            for _ in range(7):
                nonce = stream.read("ping").nonce
                stream.send(pong=subscribe.Pong(nonce=nonce))

    def test_no_pong_ends_it(self):
        with self.at.stream() as stream:
            stream.read("started")
            nonce = stream.read("ping").nonce
            # Neither another nonce nor another frame answers the challenge.
            stream.send(pong=subscribe.Pong(nonce=nonce ^ 1))
            stream.update(1)
            self.assertEqual(stream.read("applied").id, 1)
            with self.fails(grpc.StatusCode.DEADLINE_EXCEEDED, "no Pong in time"):
                next(stream.call)


class Static(Case):
    def test_targets_catch_up_and_live(self):
        key, empty = new_key(), new_key()
        given = [self.at.put(welcome(key, bytes([number]))) for number in range(2)]
        with self.at.fixed(at(welcome_topic(key)), at(welcome_topic(empty))) as stream:
            started = next(stream).started
            self.assertEqual(started.keepalive_interval_ms, 30_000)
            targets = [(one.topic, one.through_sequence_id) for one in started.targets]
            self.assertEqual(targets, [(welcome_topic(key), given[1]), (welcome_topic(empty), 0)])
            found = []
            while len(found) < 2:
                found += ids(next(stream).messages.envelopes)
            self.assertEqual(found, given)
            put = self.at.put(welcome(empty))
            self.assertEqual(ids(next(stream).messages.envelopes), [put])

    def test_what_is_refused(self):
        one = at(welcome_topic(new_key()))
        bad = {"none": [], "twice": [one, one], "key packages": [at(key_package_topic(new_key()))]}
        for name, topics in bad.items():
            with self.subTest(name), self.at.fixed(*topics) as stream, self.fails(grpc.StatusCode.INVALID_ARGUMENT):
                next(stream)


class StaticKeepalive(Case):
    server = "IMPATIENT"

    def test_a_quiet_stream_gives_signs_of_life(self):
        with self.at.fixed(at(welcome_topic(new_key()))) as stream:
            self.assertEqual(next(stream).started.keepalive_interval_ms, 300)
            for _ in range(4):
                self.assertEqual(next(stream).WhichOneof("response"), "keepalive")


if __name__ == "__main__":
    unittest.main()
