// The page of "kubectl tollgate dashboard". Text of the cluster becomes text nodes alone.

const $ = (id) => document.getElementById(id);
const states = ["Leaving", "Due", "Waiting", "Blocked", "Held", "Paused", "Protected"];
const pageSize = 100;

const cluster = { status: {}, nodes: [], devices: [], policies: [], budgets: [], taints: [], hidden: {} };
const pods = new Map();
let rows = [];
let most = pageSize;
let filter = "";
// behind is how many milliseconds the clock of the server is behind that of the page.
let behind = 0;

const now = () => Date.now() - behind;

// element returns a new element with properties and children. Data and aria are objects.
function element(name, { data = {}, aria = {}, ...properties } = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  Object.assign(made.dataset, data);
  for (const [key, value] of Object.entries(aria)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// reconcile makes the children of parent those of items, in order. It keeps the elements of items that
// stay, and with them the focus. Fill writes an item into its element.
function reconcile(parent, items, key, make, fill) {
  const kept = parent.kept ?? (parent.kept = new Map());
  const wanted = new Set(items.map(key));
  for (const [name, child] of kept) {
    if (!wanted.has(name)) {
      child.remove();
      kept.delete(name);
    }
  }
  const focused = document.activeElement;
  let at = parent.firstChild;
  for (const item of items) {
    const name = key(item);
    let child = kept.get(name);
    if (!child) kept.set(name, (child = make(item)));
    fill(child, item);
    if (at && child === at.nextSibling) {
      // Only the one in between has moved, further down.
      const moved = at;
      at = child;
      parent.append(moved);
    }
    if (child === at) at = at.nextSibling;
    else parent.insertBefore(child, at);
  }
  if (focused !== document.activeElement && document.contains(focused)) focused.focus({ preventScroll: true });
}

const setText = (target, text) => {
  if (target.textContent !== text) target.textContent = text;
};

const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

// span returns a duration in words of at most two units, as kubectl does.
function span(milliseconds) {
  const s = Math.max(0, Math.ceil(milliseconds / 1000));
  if (s < 120) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${s % 60 ? `${s % 60}s` : ""}`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${Math.floor((s % 3600) / 60)}m`;
  return `${Math.floor(s / 86400)}d${Math.floor((s % 86400) / 3600)}h`;
}

function when(pod) {
  if (pod.state === "Leaving") return "now";
  if (pod.state === "Protected" && !pod.until) return "stays";
  const left = pod.due - now();
  if (left > 0) return `in ${span(left)}`;
  return left > -1000 ? "now" : `${span(-left)} ago`;
}

// --- the parts of the page

const draw = {
  status({ tollgate = {}, policies = [], attention = [], missing = [] }) {
    list("attention", attention);
    list("missing", missing);
    $("kinds").closest("section").hidden = policies.length === 0;
    reconcile($("kinds"), policies, (p) => p.kind, () => row(4), (line, p) => {
      const names = (of) => (of ?? []).map((one) => (one.reason ? `${one.name} (${one.reason})` : one.name)).join(", ") || "none";
      const violations = (p.violations ?? []).map((v) => `${v.name}: ${v.pods}`).join(", ") || "none";
      cells(line, [p.kind, String(p.policies), names(p.notReady), violations]);
    });
    const stopped = cluster.policies.some((p) => p.name === "stop-evictions" && p.paused);
    $("pause-all").hidden = stopped;
    $("resume-all").hidden = !stopped;
    const mode = !tollgate.installed ? "does not run here" : tollgate.mode ? `mode ${tollgate.mode}` : "mode not known";
    const leader = tollgate.leads ? `, led by ${tollgate.leader}` : tollgate.installed ? ", no leader" : "";
    setText($("summary"), mode + leader + ", " + totals());
  },
  nodes: (nodes) => map($("nodes"), nodes, "node"),
  devices: (devices) => map($("devices"), devices, "device"),
  hidden(hidden) {
    setText($("hidden-nodes"), hidden.nodes ? `${count(hidden.nodes, "more node")} without room here` : "");
    setText($("hidden-devices"), hidden.devices ? `${count(hidden.devices, "more device")} without room here: kubectl tollgate devices` : "");
  },
  policies(policies) {
    $("policies").closest("section").hidden = policies.length === 0;
    reconcile($("policies"), policies, (p) => p.name, () => row(6), (line, p) => {
      let breaker = p.breaker ? `${p.used ?? 0} of ${p.breaker}` : "none";
      if (p.tripped) breaker += ", tripped";
      cells(line, [p.name, String(p.priority), p.pace ?? "none", breaker, count(p.held, "pod")]);
      const offered = p.name === "stop-evictions" ? [["Resume", "resume", "all"]]
        : [p.paused ? ["Resume", "resume", "policy", p.name] : ["Pause", "pause", "policy", p.name]];
      if (p.breaks) offered.push(["Release", "release", p.name, `--pods=${p.breaks}`]);
      buttons(line.lastChild, offered, p.name);
    });
  },
  budgets(budgets) {
    $("budgets").closest("section").hidden = budgets.length === 0;
    reconcile($("budgets"), budgets, (b) => `${b.namespace}/${b.name}`, () => row(4), (line, b) => {
      cells(line, [b.namespace, b.name, String(b.allowed), String(b.pods)]);
    });
  },
  taints(taints) {
    $("taints").closest("section").hidden = taints.length === 0;
    reconcile($("taints"), taints, (t) => `${t.kind}/${t.name}`, () => row(7), (line, t) => {
      const sum = (...of) => of.reduce((total, state) => total + (t.pods[state] ?? 0), 0);
      const parts = { gone: sum("Gone"), going: sum("Leaving", "Due", "Waiting"), held: sum("Blocked", "Held", "Paused"), stays: sum("Protected") };
      cells(line, [`${t.kind}/${t.name}`, null, String(parts.gone), String(parts.going), String(parts.held), String(parts.stays)]);
      bar(line.children[1], parts);
      buttons(line.lastChild, t.breaks && t.kind !== "slice" ? [["Approve", "approve", t.kind, t.name, `--pods=${t.breaks}`]] : [], `${t.kind} ${t.name}`);
    });
  },
};

const row = (columns) => element("tr", {}, ...Array.from({ length: columns }, () => element("td")));

// cells writes the texts of a row. A cell of null is left as it is.
function cells(line, texts) {
  texts.forEach((text, i) => text === null || setText(line.children[i], text));
}

function bar(cell, parts) {
  const shown = cell.firstChild ?? cell.appendChild(element("div", { className: "bar", aria: { "aria-hidden": "true" } },
    ...Object.keys(parts).map((part) => element("i", { data: { part } }))));
  for (const part of shown.children) part.style.flexGrow = parts[part.dataset.part];
}

// buttons shows the buttons of an object. Each is a label and the arguments of a command.
function buttons(cell, offered, object) {
  const group = cell.firstChild ?? cell.appendChild(element("div", { className: "actions" }));
  reconcile(group, offered, (o) => o.join(" "), ([label, ...args]) => {
    const button = element("button", { type: "button", textContent: label, aria: { "aria-label": `${label} ${object}` } });
    button.addEventListener("click", () => command(args));
    return button;
  }, () => {});
}

function list(id, sentences) {
  $(id).closest("section").hidden = sentences.length === 0;
  reconcile($(id), sentences.map((text, i) => [text, i]), ([, i]) => i, () => element("li"), (item, [text]) => setText(item, text));
}

// byName sorts node-2 before node-10.
const byName = new Intl.Collator("en", { numeric: true });

// marks are the letters of effects where there is no room for names.
const marks = { None: "i", PreferNoSchedule: "p", NoSchedule: "s", NoExecute: "x" };

// map shows nodes or devices as cells. Arrow keys move between cells, and Enter explains one.
function map(box, items, kind) {
  box.closest("section").hidden = items.length === 0;
  const dense = 60;
  box.classList.toggle("dense", items.length > dense);
  items.sort((a, b) => byName.compare(a.name, b.name));
  reconcile(box, items, (item) => item.name, (item) => {
    const cell = element("div", { className: "cell", id: `${kind}:${item.name}`, aria: { role: "option", "aria-selected": "false" } });
    cell.addEventListener("click", () => {
      activate(box, cell);
      choose(box, cell, kind);
    });
    return cell;
  }, (cell, item) => {
    const taints = (item.taints ?? []).join(", ") || "no taint";
    const label = `${item.name}: ${taints}${item.pods ? `; ${count(item.pods, "pod")} to leave` : ""}`;
    setText(cell, item.name);
    cell.title = label;
    cell.setAttribute("aria-label", label);
    cell.dataset.effect = item.effect ?? "";
    cell.dataset.mark = marks[item.effect] ?? "";
    cell.name = item.name;
  });
}

function activate(box, cell) {
  box.querySelector(".active")?.classList.remove("active");
  cell.classList.add("active");
  box.setAttribute("aria-activedescendant", cell.id);
  cell.scrollIntoView({ block: "nearest" });
}

// choose filters the list by a node, and explains a node or a device.
function choose(box, cell, kind) {
  for (const other of box.querySelectorAll("[aria-selected=true]")) other.setAttribute("aria-selected", "false");
  cell.setAttribute("aria-selected", "true");
  if (kind === "node") {
    $("filter").value = filter = cell.name;
    drawPods();
  }
  command(["explain", kind, cell.name]);
}

for (const [id, kind] of [["nodes", "node"], ["devices", "device"]]) {
  const box = $(id);
  // A click activates the cell below it.
  box.addEventListener("focus", () => box.matches(":focus-visible") && !box.querySelector(".active") && box.firstChild && activate(box, box.firstChild));
  box.addEventListener("keydown", (event) => {
    const active = box.querySelector(".active") ?? box.firstChild;
    if (!active) return;
    const steps = { ArrowRight: active.nextSibling, ArrowDown: active.nextSibling, ArrowLeft: active.previousSibling, ArrowUp: active.previousSibling, Home: box.firstChild, End: box.lastChild };
    if (event.key === "Enter" || event.key === " ") choose(box, active, kind);
    else if (event.key in steps) activate(box, steps[event.key] ?? active);
    else return;
    event.preventDefault();
  });
}

// --- the list of pods

function totals() {
  const sums = {};
  for (const pod of pods.values()) sums[pod.state] = (sums[pod.state] ?? 0) + 1;
  return states.filter((s) => sums[s]).map((s) => `${sums[s]} ${s}`).join(", ") || "no pod has to leave";
}

function drawPods() {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  rows = [...pods.values()].filter((pod) => words.every((word) => pod.text.includes(word)));
  rows.sort((a, b) => states.indexOf(a.state) - states.indexOf(b.state) || a.due - b.due || (a.key < b.key ? -1 : 1));
  const shown = rows.slice(0, most);
  reconcile($("pods"), shown, (pod) => pod.key, (pod) => {
    const explain = element("button", { type: "button", className: "link", textContent: pod.name, aria: { "aria-label": `Explain pod ${pod.namespace}/${pod.name}` } });
    explain.addEventListener("click", () => command(["explain", "pod", pod.name, "--namespace", pod.namespace]));
    const line = row(6);
    line.children[1].className = "state";
    line.children[3].append(explain);
    return line;
  }, (line, pod) => {
    line.children[1].dataset.state = pod.state;
    cells(line, [when(pod), pod.state, pod.namespace, null, pod.node, pod.reason]);
  });
  const hidden = rows.length - shown.length;
  $("more").hidden = hidden === 0;
  setText($("count"), rows.length === pods.size ? count(pods.size, "pod") : `${rows.length} of ${count(pods.size, "pod")}`);
  tick();
}

// tick writes the times that pass.
function tick() {
  const kept = $("pods").kept;
  for (const pod of rows.slice(0, most)) {
    const line = kept?.get(pod.key);
    if (line) setText(line.firstChild, when(pod));
  }
  let next;
  for (const pod of pods.values()) {
    if (pod.state === "Waiting" && (!next || pod.due < next.due)) next = pod;
  }
  setText($("next"), next ? `Next: ${next.namespace}/${next.name} ${when(next)}` : "");
}

$("filter").addEventListener("input", (event) => {
  filter = event.target.value;
  most = pageSize;
  drawPods();
});
$("more").addEventListener("click", () => {
  most += pageSize;
  drawPods();
});
// A key that is held down confirms nothing.
document.addEventListener("keydown", (event) => {
  if (event.repeat && event.key === "Enter") event.preventDefault();
}, true);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !/^(INPUT|DIALOG)$/.test(event.target.tagName) && !$("dialog").open) {
    event.preventDefault();
    $("filter").focus();
  }
});

// --- commands

let latest = 0;
// look aborts the last command that changes nothing, so that it ends with the dialog.
let look = new AbortController();

// run asks the server to run a command, and returns its answer.
async function run(args, confirmed) {
  look = new AbortController();
  const signal = confirmed ? undefined : look.signal;
  const response = await fetch("run", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ args, confirmed }), signal });
  if (!response.ok) throw new Error((await response.text()).trim());
  return response.json();
}

// command shows a command and its effect, and runs it after a confirmation. Explanations change
// nothing, and need none.
async function command(args) {
  const mine = ++latest;
  look.abort();
  const explains = args[0] === "explain";
  const confirm = $("confirm");
  setText($("command"), `kubectl tollgate ${args.join(" ")}`);
  setText($("dialog-head"), explains ? "Explanation" : "Run this command?");
  setText($("output"), "");
  confirm.hidden = explains;
  confirm.disabled = true;
  if (!$("dialog").open) $("dialog").showModal();
  const answer = await show(mine, args, false, explains ? "Working" : "Looking at the effect");
  if (!answer || explains) return;
  confirm.disabled = answer.code !== 0;
  confirm.onclick = async () => {
    confirm.disabled = true;
    await show(mine, args, true, "Running");
  };
}

// show runs a command and writes its output into the dialog, unless that shows another one by now.
async function show(mine, args, confirmed, doing) {
  setText($("working"), doing);
  try {
    const answer = await run(args, confirmed);
    if (mine !== latest) return null;
    setText($("command"), answer.command);
    setText($("output"), answer.output || "The command has written nothing.");
    const effect = args[0] === "explain" ? "" : confirmed ? "Done" : "This is the effect. Nothing has been changed yet.";
    setText($("working"), answer.code === 0 ? effect : `Exit code ${answer.code}`);
    return answer;
  } catch (error) {
    if (mine === latest) setText($("working"), `Failed: ${error.message}`);
    return null;
  }
}

$("close").addEventListener("click", () => $("dialog").close());
$("dialog").addEventListener("close", () => {
  latest++;
  look.abort();
});
$("pause-all").addEventListener("click", () => command(["pause", "all"]));
$("resume-all").addEventListener("click", () => command(["resume", "all"]));

// --- updates

let events;

// connect follows the cluster, unless nobody looks: a browser has few connections for a host.
function connect() {
  events?.close();
  if (document.hidden) return;
  events = new EventSource("events");
  events.addEventListener("open", () => {
    setText($("connection"), "");
    pods.clear(); // A new stream begins with all pods.
  });
  events.addEventListener("error", () => {
    setText($("connection"), "The connection is lost. What is shown may be old. Does the command still run, and are few of its pages open?");
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  });
  events.addEventListener("message", take);
}

// take takes in an update.
function take(event) {
  const update = JSON.parse(event.data);
  behind = Date.now() - update.now;
  for (const key of update.gone ?? []) pods.delete(key);
  for (const pod of update.pods ?? []) {
    pod.text = `${pod.state} ${pod.namespace}/${pod.name} ${pod.node} ${pod.reason}`.toLowerCase();
    pods.set(pod.key, pod);
  }
  const sections = update.sections ?? {};
  for (const [name, part] of Object.entries(sections)) {
    cluster[name] = part ?? [];
    if (name !== "status") draw[name](cluster[name]);
  }
  draw.status(cluster.status);
  drawPods();
}

document.addEventListener("visibilitychange", connect);
connect();
setInterval(tick, 1000);
