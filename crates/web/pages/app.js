// The page of a cluster: asks for facts every two seconds, and draws them. Text from the cluster
// (paths, sentences) only ever becomes text, never markup.

import { colour, short, squarified, stacked } from "/charts.js";

const INTERVAL = 2000;
const KEPT = 900;
const OPERATIONS = ["requests", "ahead"];
const BYTES = ["journal_bytes", "merge_bytes"];

const part = (id) => document.getElementById(id);
const key = () => new URLSearchParams(location.hash.slice(1)).get("key") ?? "";

// An element with text and classes.
function made(name, text, classes = "") {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (classes) element.className = classes;
  return element;
}

async function ask(path) {
  const answer = await fetch(path, { headers: { Authorization: `Bearer ${key()}` } });
  if (answer.status === 401) {
    throw new Error("This page needs its key: `cudele web` prints the address with the key.");
  }
  const facts = await answer.json();
  if (!answer.ok) throw new Error(facts.error ?? answer.statusText);
  return facts;
}

const state = { before: null, recalled: false, rates: new Map(), walked: "/", from: 0, heat: [] };

function sum(counters, names) {
  return names.reduce((all, name) => all + (counters[name] ?? 0), 0);
}

// Rates since the facts before: null for a server that began to count anew.
function rates(now) {
  const before = state.before;
  state.before = now;
  const seconds = before ? Math.max((now.time - before.time) / 1000, 0.001) : 1;
  return now.servers.map((server) => {
    const earlier = before?.servers.find((it) => it.rank === server.rank && it.term === server.term);
    const rate = (names) => (earlier
      ? Math.max(sum(server.counters, names) - sum(earlier.counters, names), 0) / seconds : null);
    return { server, operations: rate(OPERATIONS), bytes: rate(BYTES), forwards: rate(["forwards"]) };
  });
}

function drawHealth(facts) {
  const errors = facts.findings.filter((it) => it.severity === "error").length;
  const warnings = facts.findings.length - errors;
  const [word, text] = errors ? ["error", `${errors} error${errors > 1 ? "s" : ""}`]
    : warnings ? ["warning", `${warnings} warning${warnings > 1 ? "s" : ""}`] : ["ok", "all is well"];
  part("health").className = `pill ${word}`;
  part("health").textContent = text;
  document.title = word === "ok" ? "Cudele" : `Cudele: ${text}`;
  part("findings-section").hidden = facts.findings.length === 0;
  part("findings").replaceChildren(...facts.findings.map((finding) => {
    const item = made("li", undefined, finding.severity);
    item.append(made("code", finding.code), ` ${finding.text}`, made("p", finding.remedy));
    return item;
  }));
}

// Appends the rates to the curves of their servers.
function remember(all) {
  for (const { server, operations } of all) {
    const curve = state.rates.get(server.rank) ?? [];
    curve.push(operations);
    if (curve.length > KEPT) curve.shift();
    state.rates.set(server.rank, curve);
  }
}

function drawServers(all) {
  remember(all);
  const series = all.map(({ server }) => ({ rank: server.rank, values: state.rates.get(server.rank) }));
  const looks = Math.max(1, ...series.map(({ values }) => values.length));
  stacked(part("load"), series, ((looks - 1) * INTERVAL) / 1000);
  const total = all.reduce((sum, { operations }) => sum + (operations ?? 0), 0);
  part("total").textContent = `${short(total)} now`;
  part("servers").replaceChildren(...all.map(({ server, operations, bytes, forwards }) => {
    const card = made("div", undefined, "card");
    const name = made("h3", `rank ${server.rank}`);
    const swatch = made("span", undefined, "swatch");
    swatch.style.background = colour(server.rank);
    name.prepend(swatch);
    const kind = { active: "ok", lost: "error" }[server.state] ?? "warning";
    name.append(made("span", server.state, `pill ${kind}`));
    const figure = made("div");
    figure.append(made("strong", operations === null ? "–" : short(operations)), " operations/s");
    const list = made("dl");
    const counters = server.counters;
    const rows = [
      ["inodes", short(counters.inodes ?? 0)],
      ["clients", short(counters.sessions ?? 0)],
      ["open files", short(counters.open_files ?? 0)],
      ["journal", `${short(bytes ?? 0)}B/s, ${counters.journal_segments ?? 0} segments`],
      ["forwarded", `${short(forwards ?? 0)}/s`],
      ["process", `${server.pid}, term ${server.term}`],
    ];
    for (const [term, value] of rows) list.append(made("dt", term), made("dd", value));
    card.title = server.address;
    card.append(name, figure, list);
    return card;
  }));
}

// The directories right below the one that is shown. The load of a directory has those below it.
function below(path) {
  const prefix = path === "/" ? "/" : `${path}/`;
  const children = new Map();
  for (const { path: hot, load, rank } of state.heat) {
    if (!hot.startsWith(prefix) || hot === path) continue;
    const name = hot.slice(prefix.length).split("/")[0];
    const known = children.get(name) ?? { path: prefix + name, load: 0, rank, more: false };
    known.more ||= prefix + name !== hot;
    if (load > known.load) [known.load, known.rank] = [load, rank];
    children.set(name, known);
  }
  return [...children.entries()].sort((a, b) => b[1].load - a[1].load);
}

function walk(path) {
  state.walked = path;
  drawHeat();
}

function drawHeat() {
  const parts = state.walked.split("/").filter((name) => name);
  part("trail").replaceChildren(...["/", ...parts].map((name, depth) => {
    const button = made("button", name);
    button.type = "button";
    button.onclick = () => walk(`/${parts.slice(0, depth).join("/")}`);
    return button;
  }));
  const [figure, children] = [part("heat"), below(state.walked)];
  if (children.length === 0) {
    const text = state.heat.length === 0
      ? "No load has been reported. Balancers measure directories in clusters of several ranks."
      : "Nothing below this directory is hot.";
    figure.replaceChildren(made("p", text, "empty"));
    return;
  }
  const tiles = [];
  const box = { left: 0, top: 0, width: figure.clientWidth, height: figure.clientHeight };
  tilesBelow(children, box, tiles, 0);
  figure.replaceChildren(...tiles);
}

// The height of a tile's own text, the smallest tile with others in it, and the thinnest of all.
const [HEAD, SMALLEST, THINNEST] = [36, 90, 14];

// Tiles for directories in a box, and in large tiles those of the directories below.
function tilesBelow(children, box, tiles, depth) {
  const hottest = Math.max(...state.heat.map(({ load }) => load));
  const places = squarified(children.map(([, { load }]) => load), box.width, box.height);
  children.forEach(([name, child], at) => {
    const { left, top, width, height } = places[at];
    if (width < THINNEST || height < THINNEST) return;
    const place = { left: box.left + left, top: box.top + top, width, height };
    const tile = made(child.more ? "button" : "div", undefined, "tile");
    for (const [side, length] of Object.entries(place)) tile.style[side] = `${length}px`;
    const heat = child.load / hottest;
    tile.style.background = `color-mix(in srgb, var(--hot) ${Math.round(10 + 50 * heat)}%, var(--card))`;
    tile.title = `${child.path}: ${short(child.load)} hits, faded, rank ${child.rank}`;
    tile.append(made("span", name), made("small", `${short(child.load)} · rank ${child.rank}`));
    if (child.more) tile.onclick = () => walk(child.path);
    tiles.push(tile);
    if (!child.more || depth === 2 || width < SMALLEST || height < HEAD + SMALLEST / 2) return;
    const inner = { left: place.left + 4, top: place.top + HEAD, width: width - 8, height: height - HEAD - 4 };
    tilesBelow(below(child.path), inner, tiles, depth + 1);
  });
}

async function drawSubtrees(facts) {
  const promises = facts.promises.map(({ promise, subtrees }) => `${subtrees} ${promise}`);
  if (facts.listed < facts.decoupled) promises.push(`${facts.decoupled - facts.listed} not listed`);
  part("promises").textContent = promises.join(" · ");
  const query = new URLSearchParams({ from: state.from, find: part("find").value });
  const { total, from, rows } = await ask(`/api/decoupled?${query}`);
  part("range").textContent = rows.length ? `${from + 1} to ${from + rows.length} of ${total}` : `${total}`;
  part("back").disabled = from === 0;
  part("forward").disabled = from + rows.length >= total;
  part("subtrees").replaceChildren(...rows.map((row) => {
    const line = made("tr");
    const path = made("td", row.path);
    path.title = row.policy;
    const waits = row.next_policy === null ? "pending" : "pending; another policy waits";
    line.append(path, made("td", `client.${row.client}`), made("td", row.promise), made("td", waits));
    return line;
  }));
  if (rows.length === 0) {
    const cell = made("td", total === 0 ? "No client has a subtree for itself." : "", "empty");
    cell.colSpan = 4;
    const line = made("tr");
    line.append(cell);
    part("subtrees").append(line);
  }
}

function drawDecisions(facts, decisions) {
  const { policy, version, why } = facts.balancer;
  part("policy").textContent = `${policy} (version ${version})${why ? `: ${why}` : ""}`;
  const items = decisions.map((it) => {
    const item = made("li", undefined, it.kind === "move" && !it.moved ? "bad" : "");
    item.append(made("time", new Date(it.time).toLocaleTimeString()), `rank ${it.rank}: `);
    if (it.kind === "move") {
      item.append(it.moved
        ? `moved ${it.path} to rank ${it.to}, requests waited ${it.frozen_ms} ms`
        : `did not move ${it.path} to rank ${it.to}: ${it.failure}`);
      return item;
    }
    const moves = it.moves.map(({ path, to, load }) => `${path} (load ${short(load)}) to rank ${to}`);
    item.append(`${it.policy} ${it.ended}${it.why ? `, ${it.why}` : ""}`);
    if (moves.length) item.append(`: ${moves.join(", ")}`);
    const loads = it.loads.map((load) => short(load)).join(", ");
    item.append(made("div", `loads ${loads}${it.log.length ? `; ${it.log.join("; ")}` : ""}`, "hint"));
    return item;
  });
  part("decisions").replaceChildren(...items);
  if (items.length === 0) part("decisions").append(made("li", "The balancers have decided nothing.", "empty"));
}

// The curves of the time before the page was opened. The newest sample is as young as the facts.
async function recall() {
  const { samples } = await ask("/api/history");
  for (const sample of samples) remember(rates(sample));
  state.recalled = true;
}

async function look() {
  if (!state.recalled) await recall();
  const facts = await ask("/api/cluster");
  part("cluster").textContent = facts.cluster;
  part("clock").textContent = new Date(facts.time).toLocaleTimeString();
  part("facts").textContent = `Cudele ${facts.version} · map ${facts.map} · store ${facts.store} · `
    + `${facts.policies} policies`;
  drawHealth(facts);
  drawServers(rates(facts));
  await drawSubtrees(facts);
  state.heat = await ask("/api/heat");
  drawHeat();
  drawDecisions(facts, await ask("/api/decisions"));
}

async function run() {
  for (;;) {
    const begun = Date.now();
    try {
      if (!document.hidden) {
        await look();
        part("fault").hidden = true;
        document.body.dataset.looks = Number(document.body.dataset.looks ?? 0) + 1;
      }
    } catch (fault) {
      part("fault").hidden = false;
      part("fault").textContent = fault instanceof TypeError ? "The server of this page does not answer." : fault.message;
      part("health").className = "pill error";
      part("health").textContent = "no facts";
    }
    await new Promise((done) => setTimeout(done, Math.max(INTERVAL - (Date.now() - begun), 100)));
  }
}

function theme(chosen) {
  const dark = chosen ?? localStorage.getItem("theme")
    ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = dark;
}

theme();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme());
part("theme").onclick = () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", next);
  theme(next);
};
const again = (from) => () => {
  state.from = Math.max(from(), 0);
  if (state.before) drawSubtrees(state.before).catch(() => {});
};
part("find").oninput = again(() => 0);
part("back").onclick = again(() => state.from - 200);
part("forward").onclick = again(() => state.from + 200);
addEventListener("resize", () => state.before && drawHeat());
addEventListener("hashchange", () => location.reload());
run();
