// The page: a stock gRPC-Web client, told what to do by the test, telling what it saw.

import { createClient, ConnectError } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-web";
import { fromBinary } from "@bufbuild/protobuf";
import { ClientEnvelopeSchema } from "./generated/xmtp/backend/v1/envelope_pb.js";
import { PublishErrorSchema, PublishService } from "./generated/xmtp/backend/v1/publish_pb.js";
import { QueryService } from "./generated/xmtp/backend/v1/query_pb.js";
import { SubscribeService } from "./generated/xmtp/backend/v1/subscribe_pb.js";

let transport;
const cancels = new Map();

const bytes = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const topics = (list) => list.map((topic) => ({ topic: { topic: bytes(topic) } }));
const ids = (envelopes) => envelopes.map((envelope) => Number(envelope.meta.cursor.sequenceId));

function failure(error) {
  const known = ConnectError.from(error);
  const [detail] = known.findDetails(PublishErrorSchema);
  return { code: known.code, index: detail?.index, reason: detail?.reason };
}

window.commands = {
  open(url) {
    transport = createGrpcWebTransport({ baseUrl: url });
  },

  // Goes on reporting frames until the stream ends or is cancelled.
  subscribe(name, list) {
    const cancel = new AbortController();
    cancels.set(name, cancel);
    const client = createClient(SubscribeService, transport);
    (async () => {
      try {
        const request = { topics: topics(list) };
        for await (const { response } of client.subscribeStatic(request, { signal: cancel.signal })) {
          const frame = { name, frame: response.case };
          if (response.case === "started") {
            frame.targets = response.value.targets.map((target) => Number(target.throughSequenceId));
          } else if (response.case === "messages") {
            frame.ids = ids(response.value.envelopes);
          }
          window.report(frame);
        }
        window.report({ name, ended: 0 });
      } catch (error) {
        window.report({ name, ended: failure(error).code });
      }
    })();
  },

  cancel(name) {
    cancels.get(name).abort();
  },

  async publish(name, encoded) {
    const envelopes = encoded.map((hex) => fromBinary(ClientEnvelopeSchema, bytes(hex)));
    try {
      const { envelopeMetas } = await createClient(PublishService, transport).publish({ envelopes });
      window.report({ name, ids: envelopeMetas.map((meta) => Number(meta.cursor.sequenceId)) });
    } catch (error) {
      window.report({ name, failed: failure(error) });
    }
  },

  async query(name, list) {
    const client = createClient(QueryService, transport);
    const { envelopes } = await client.query({ queries: topics(list) });
    window.report({ name, ids: ids(envelopes) });
  },
};
