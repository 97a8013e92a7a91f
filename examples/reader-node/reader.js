// Reads tables that hotpartition shards: pages and single items. It never writes. docs/format.md describes the rules.
// Items and keys have the form of DynamoDB itself, such as { pk: { S: "room-1" } }.

import { GetItemCommand, QueryCommand } from "@aws-sdk/client-dynamodb";
import { blake2b } from "@noble/hashes/blake2.js";

const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const NEXT_CHOICES = Buffer.from("next choices\0\0\0\0");
const toBigInt = (bytes) => BigInt(`0x${Buffer.from(bytes).toString("hex")}`);
const compare = (one, other) => (one < other ? -1 : Number(one > other));

/** Hash a text to 64 bits. */
export const stableHash = (text) => toBigInt(blake2b(Buffer.from(text), { dkLen: 8 }));

/** List the shards that can hold an item under one N: its first choice, then the others. */
export function chooseShards(text, shardCount) {
  const n = BigInt(shardCount);
  const first = stableHash(text) % n;
  if (n === 1n) return [0];
  const digest = blake2b(Buffer.from(text), { dkLen: 16, personalization: NEXT_CHOICES });
  const second = (first + 1n + (toBigInt(digest.subarray(0, 8)) % (n - 1n))) % n;
  if (n === 2n) return [Number(first), Number(second)];
  let third = toBigInt(digest.subarray(8)) % (n - 2n);
  for (const taken of [first, second].sort(compare)) if (third >= taken) third += 1n;
  return [first, second, third].map(Number);
}

/** Build the text by which the shard of an item with this value is chosen. Numbers are as DynamoDB returns them. */
export const textOf = ({ S, N, B }) => S ?? N ?? Buffer.from(B).toString("hex");

/** Compare two sort keys as DynamoDB sorts them. */
export function compareKeys(one, other) {
  if (one.N === undefined) return Buffer.compare(Buffer.from(one.S ?? one.B), Buffer.from(other.S ?? other.B));
  const [sign, otherSign] = [one, other].map(({ N }) => (N.startsWith("-") ? -1 : 1));
  const [a, b] = [one, other].map(({ N }) => N.replace("-", ""));
  const size = compare(a.split(".")[0].length, b.split(".")[0].length) || compare(a, b);
  return sign === otherSign ? sign * size : sign - otherSign;
}

/** Split a partition key into its collection and, on a shard, the shard's index. */
export function parsePartitionKey(partitionKey, separator = "#_") {
  const at = partitionKey.lastIndexOf(separator);
  const index = at < 0 ? "" : partitionKey.slice(at + separator.length);
  if (!/^(0|[1-9][0-9]{0,3})$/.test(index)) return { collection: partitionKey };
  return { collection: partitionKey.slice(0, at), shard: Number(index) };
}

/** A collection's generations and closes. */
export class Route {
  /** Read the members of `generations`; one that cannot be read means that a page could be incomplete. */
  constructor(members = []) {
    this.generations = [];
    const closes = [];
    for (const member of members) {
      const [, count, since] = /^([1-9][0-9]{0,5})@(0|[1-9][0-9]{0,14})$/.exec(member) ?? [];
      const [, step, at] = /^(closing|closed)@(0|[1-9][0-9]{0,14})$/.exec(member) ?? [];
      if (count && Number(count) <= 1024) this.generations.push({ since: Number(since), count: Number(count) });
      else if (step === "closed") closes.push({ since: Number(at), count: 0 });
      else if (!step) throw new Error(`${JSON.stringify(member)} is no generation or close`);
    }
    const steps = [...closes, ...this.generations].sort((a, b) => a.since - b.since || a.count - b.count);
    let highest = 0;
    this.steps = steps.map(({ since, count }) => ({ since, count: (highest = count ? Math.max(highest, count) : 0) }));
  }

  /** Return the largest N(t) of a range of positions, inclusive; undefined: without bound. */
  shardsBetween(first = -Infinity, last = Infinity) {
    const before = this.steps.findLast(({ since }) => since <= first)?.count ?? 0;
    return Math.max(before, ...this.steps.filter((s) => s.since > first && s.since <= last).map((s) => s.count));
  }

  /** List the shards ("" is the base key) that can hold items of a range of positions. */
  pageShards(first, last) {
    return ["", ...Array(this.shardsBetween(first, last)).keys()];
  }

  /** List those that can hold one item: its choices under every N that may have been known when it was written. */
  pointShards(text, position = Infinity) {
    const counts = [...new Set(this.generations.filter((g) => g.since <= position).map((g) => g.count))];
    const chosen = counts.sort((a, b) => a - b).map((count) => chooseShards(text, count));
    return [...new Set(["", ...[0, 1, 2].flatMap((rank) => chosen.flatMap((shards) => shards.slice(rank, rank + 1)))])];
  }
}

/** N is set in code: `fixed(4, 16)` names all numbers that were ever used. Without it, routing items say what N is. */
export const fixed = (...counts) => ({ route: new Route(counts.filter(Boolean).map((count) => `${count}@0`)) });

/** What differs in the message store: the copy that counts, and which messages are shown. */
export const MESSAGES = {
  separator: "#",
  hashed: ({ sk }) => sk.S.slice(2),
  rank: (item) => [item.deleted_at ? 1 : 0, Number(item.version?.N ?? 1)],
  isShown: (item, now = Date.now()) => !item.deleted_at && !(Number(item.expires_at?.N) * 1000 <= now),
  position: ({ S: key }) => [...key.slice(2, 12)].reduce((ms, digit) => ms * 32 + CROCKFORD.indexOf(digit), 0),
};

export class Reader {
  /** `position` and `hashed` are the writers': of a sort key, and the text of a key's shard (undefined: unknown). */
  constructor(client, { partitionKey = "pk", sortKey = "sk", shards, ...options }) {
    const hashed = (key) => textOf(key[sortKey]);
    const rank = (item) => [Number(item.hp_changes?.N ?? 0)];
    const defaults = { separator: "#_", position: () => undefined, hashed, rank, isShown: () => true };
    Object.assign(this, { client, partitionKey, sortKey, ...defaults, ...options });
    this.shards = shards?.route ? shards : { sortKey: { S: "r#" }, partitionKey, ...shards };
  }

  /** Turn any stored item, such as one of a scan or a stream, into its owner's; undefined: it is not the owner's. */
  show(item) {
    const { [this.partitionKey]: stored, [this.sortKey]: sort } = item;
    if (!this.shards.route && (stored.S.startsWith("hotpartition#load#") || this.#isRouting(sort))) return undefined;
    const shown = Object.entries(item).filter(([name]) => !/^hp_(changes|shards|noted)$/.test(name));
    const owner = { S: parsePartitionKey(stored.S, this.separator).collection };
    return { ...Object.fromEntries(shown), [this.partitionKey]: owner };
  }

  /** Read a page: `{ items, startKey }`; the next one begins at `startKey`, and the last one has none. */
  async queryNewest(collection, { limit = 50, newestFirst = true, startKey, consistent = false } = {}) {
    const options = { limit, newestFirst, startKey, consistent };
    const route = await this.#readRoute(collection, consistent);
    const from = startKey && this.position(startKey[this.sortKey]);
    const shards = newestFirst ? route.pageShards(undefined, from) : route.pageShards(from);
    const pages = await Promise.all(this.#keys(collection, shards).map((key) => this.#query(key, options)));
    const order = (one, other) => compareKeys(one, other) * (newestFirst ? -1 : 1);
    const [end] = pages.flatMap((page) => page.LastEvaluatedKey?.[this.sortKey] ?? []).sort(order);
    const copies = pages.flatMap((page) => page.Items).filter((item) => !this.#isRouting(item[this.sortKey]));
    this.#checkCovers(copies);
    const known = copies.filter((item) => !end || order(item[this.sortKey], end) <= 0);
    known.sort((one, other) => order(one[this.sortKey], other[this.sortKey]) || this.#prefer(one, other));
    const once = known.filter((item, at) => !at || order(known[at - 1][this.sortKey], item[this.sortKey]));
    const page = once.slice(0, limit);
    const last = once.length > limit ? page.at(-1)[this.sortKey] : end;
    const items = page.filter((item) => this.isShown(item)).map((item) => this.show(item));
    return last ? { items, startKey: { [this.partitionKey]: { S: collection }, [this.sortKey]: last } } : { items };
  }

  /** Read one item; undefined: it is stored at none of the places that it can have. */
  async getItem(key, { consistent = false } = {}) {
    const collection = key[this.partitionKey].S;
    const route = await this.#readRoute(collection, consistent);
    const [text, position] = [this.hashed(key), this.position(key[this.sortKey])];
    const shards = text === undefined ? route.pageShards(undefined, position) : route.pointShards(text, position);
    const places = this.#keys(collection, shards).map((place) => ({ ...key, [this.partitionKey]: { S: place } }));
    const found = await Promise.all(places.map((place) => this.#get(this.table, place, consistent)));
    const copies = found.filter((item) => item && !this.#isRouting(item[this.sortKey]));
    this.#checkCovers(copies);
    const [valid] = copies.sort((one, other) => this.#prefer(one, other));
    return valid && this.isShown(valid) ? this.show(valid) : undefined;
  }

  #keys(collection, shards) {
    const keys = shards.map((shard) => (shard === "" ? collection : `${collection}${this.separator}${shard}`));
    return this.onlyShards ? keys.filter((key) => key !== collection) : keys;
  }

  #isRouting(sort) {
    return !this.shards.route && !this.shards.table && sort && textOf(sort) === textOf(this.shards.sortKey);
  }

  #prefer(one, other) {
    const [a, b] = [one, other].map((item) => ({ rank: this.rank(item), key: item[this.partitionKey].S }));
    const unequal = a.rank.findIndex((rank, at) => rank !== b.rank[at]);
    return unequal >= 0 ? b.rank[unequal] - a.rank[unequal] : a.key.length - b.key.length || compare(a.key, b.key);
  }

  #checkCovers(items) {
    const most = Math.max(0, ...items.map((item) => Number(item.hp_shards?.N ?? 0)));
    if (most > this.shards.route?.shardsBetween()) throw new Error(`name all numbers: items lie on ${most} shards`);
  }

  async #readRoute(collection, consistent) {
    if (this.shards.route) return this.shards.route;
    const { table, partitionKey, sortKey } = this.shards;
    const key = { [partitionKey]: { S: collection }, ...(table ? {} : { [this.sortKey]: sortKey }) };
    const item = await this.#get(table ?? this.table, key, consistent);
    if (item && !item.generations?.SS?.length) throw new Error("the routing item has no string set `generations`");
    return new Route(item?.generations.SS);
  }

  async #get(TableName, Key, ConsistentRead) {
    return (await this.client.send(new GetItemCommand({ TableName, Key, ConsistentRead }))).Item;
  }

  #query(key, { limit, newestFirst, startKey, consistent }) {
    const command = new QueryCommand({
      TableName: this.table,
      KeyConditionExpression: "#partition = :key",
      ExpressionAttributeNames: { "#partition": this.partitionKey },
      ExpressionAttributeValues: { ":key": { S: key } },
      ExclusiveStartKey: startKey && { ...startKey, [this.partitionKey]: { S: key } },
      ScanIndexForward: !newestFirst,
      ConsistentRead: consistent,
      Limit: limit + 2, // one more shows whether there is a next page; another one may be the routing item
    });
    return this.client.send(command);
  }
}
