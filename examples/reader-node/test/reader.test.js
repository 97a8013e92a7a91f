// Holds the reader to docs/format-vectors.json, and to what Python reads of the tables in the file $READER_TABLES,
// which tests/integration/test_format.py writes on moto's server.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { DynamoDBClient } from "@aws-sdk/client-dynamodb";

import * as format from "../reader.js";

const { tables, ...vectors } = JSON.parse(readFileSync(new URL("../../../docs/format-vectors.json", import.meta.url)));
const position = ({ S: text }) => Number(text.slice(0, 13));
const keys = (shards) => shards.map((shard) => (shard === "" ? "room" : `room#_${shard}`));

/** Build a client over a list of items, in place of DynamoDB's. */
const over = (items, cutAt = 99) => ({
  async send({ constructor, input }) {
    const { pk, sk } = input.Key ?? { pk: input.ExpressionAttributeValues[":key"] };
    const own = items.filter((item) => item.pk.S === pk.S);
    if (constructor.name === "GetItemCommand") return { Item: own.find((item) => item.sk.S === sk.S) };
    const order = (one, other) => format.compareKeys(one.sk, other.sk) * (input.ScanIndexForward ? 1 : -1);
    const start = input.ExclusiveStartKey;
    const Items = own.sort(order).filter((item) => !start || order(item, start) > 0).slice(0, Math.min(input.Limit, cutAt));
    return { Items, LastEvaluatedKey: Items.length === Math.min(input.Limit, cutAt) ? Items.at(-1) : undefined };
  },
});

const RULES = {
  hashes: ({ text }) => ({ hash: String(format.stableHash(text)) }),
  choices: ({ text, n }) => ({ shards: format.chooseShards(text, n) }),
  texts: ({ value }) => ({ text: format.textOf(value.B ? { B: Buffer.from(value.B, "base64") } : value) }),
  orders: ({ keys: unsorted }) => ({ sorted: [...unsorted].sort(format.compareKeys) }),
  partition_keys: ({ key, separator }) => ({ shard: null, ...format.parsePartitionKey(key, separator) }),
  unreadable({ members }) {
    assert.throws(() => new format.Route(members), /no generation or close/);
    return { refused: true };
  },
  routes({ members, positions }) {
    const route = new format.Route(members);
    return { shards_at: positions.map((at) => [at, route.shardsBetween(at, at)]) };
  },
  page_keys: ({ members, first, last }) => ({
    keys: keys(new format.Route(members).pageShards(first ?? undefined, last ?? undefined)),
  }),
  point_keys: ({ members, text, position: at }) => ({
    keys: keys(new format.Route(members).pointShards(text, at ?? undefined)),
  }),
  shown({ item, numbers }) {
    const reader = new format.Reader(undefined, { shards: numbers && format.fixed(...numbers) });
    return { shown: reader.show(item) ?? null };
  },
  async messages({ copies, now_ms: now }) {
    const isShown = (item) => format.MESSAGES.isShown(item, now);
    const options = { ...format.MESSAGES, isShown, shards: format.fixed(3) };
    const { items } = await new format.Reader(over(copies), options).queryNewest("room");
    return { shown: items[0]?.body.S ?? null };
  },
  message_positions: ({ sort_key: S }) => ({ position: format.MESSAGES.position({ S }) }),
};

for (const [rule, cases] of Object.entries(vectors)) {
  test(rule, async () => {
    for (const vector of cases) assert.deepEqual({ ...vector, ...(await RULES[rule](vector)) }, vector);
  });
}

test("items under more shards than are named are refused", async () => {
  const stored = [{ pk: { S: "room#_1" }, sk: { S: "1" }, hp_shards: { N: "8" } }];
  const reader = new format.Reader(over(stored), { shards: format.fixed(4) });
  await assert.rejects(reader.queryNewest("room"), /lie on 8 shards/);
});

test("among sort keys that are numbers, the routing item has the largest", async () => {
  const routing = { pk: { S: "room" }, sk: { N: "9".repeat(38) + "0".repeat(88) }, generations: { SS: ["1@0"] } };
  const item = { pk: { S: "room" }, sk: { N: "5" } };
  const stored = [routing, { ...item, pk: { S: "room#_0" } }];
  const reader = new format.Reader(over(stored), { shards: { sortKey: routing.sk } });
  assert.deepEqual(await reader.getItem(item), item);
  assert.deepEqual((await reader.queryNewest("room")).items, [item]);
});

const credentials = { accessKeyId: "any", secretAccessKey: "any" };
const file = process.env.READER_TABLES;
const drawn = file ? JSON.parse(readFileSync(file)) : { tables: [] };
const client = new DynamoDBClient({ endpoint: drawn.endpoint, region: "eu-central-1", credentials });

for (const table of [...tables, ...drawn.tables]) {
  test(`pages and items of ${table.name}`, async () => {
    const { name, numbers, only_shards: onlyShards, limit, newest_first: newestFirst } = table;
    const { stored, cut_at: cut, pages, items } = table;
    const options = { table: name, shards: numbers && format.fixed(...numbers), onlyShards, position };
    const reader = new format.Reader(stored ? over(stored, cut) : client, options);
    const found = [];
    for (let startKey, isFirst = true; startKey || isFirst; isFirst = false) {
      const page = await reader.queryNewest("room", { limit, newestFirst, startKey, consistent: true });
      found.push(page.items);
      startKey = page.startKey;
    }
    // The last page may be empty. Where responses are cut, a page may end anywhere: nothing is missing, the order is right.
    assert.deepEqual(...[found, pages].map((each) => (cut ? each.flat() : each.filter((page) => page.length))));
    for (const [key, item] of items) assert.deepEqual((await reader.getItem(key, { consistent: true })) ?? null, item);
  });
}
