"use strict";

// What a model writes is inserted as text alone, never as markup.
const $ = (id) => document.getElementById(id);
const LOOK_EVERY_MS = 2000;
const GIVE_UP_MS = 10000;
const STATES = { loaded: "is loaded", loading: "is being loaded", unloaded: "is loaded with the next message", lost: "is lost" };
let key = sessionStorage.getItem("key") || "";
let messages = [];
let attached = []; // pictures and sounds of the next message
let reading = Promise.resolve(); // until all that were chosen are attached
let running = null; // the AbortController of the answer under way
let looking = false;
let listed = ""; // for which state the models were listed

/** Returns a text in which control characters and marks of direction are visible. */
function visible(text) {
  return text
    .replace(/\r/g, "")
    .replace(/[\x00-\x08\x0b-\x1f]/g, (each) => String.fromCharCode(0x2400 + each.charCodeAt(0)))
    .replace(/[\x7f-\x9f]/g, "\ufffd")
    .replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (each) => "\\u" + each.charCodeAt(0).toString(16).padStart(4, "0"));
}

/** Adds an element with a text, and returns it. */
function add(parent, name, text = "", style = "") {
  const made = document.createElement(name);
  made.className = style;
  made.append(text);
  parent.append(made);
  return made;
}

/** Asks the server; an answer that is an error is thrown, as its sentence. */
async function request(path, options = {}) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch {
    throw new Error("the server does not answer: is it running?");
  }
  if (response.status === 401) {
    if ($("login").hidden) {
      $("login").hidden = false;
      $("key").focus();
    }
    $("forget").hidden = true;
    throw new Error("the API key is missing or wrong");
  }
  if (!response.ok && !(path === "health" && response.status === 503)) throw new Error(await reason(response));
  return response;
}

/** Returns what is wrong, in a line. */
async function reason(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `${response.status} ${text.slice(0, 200) || response.statusText}`.trim();
  }
}

/** Yields the lines of a stream. */
async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    yield* parts;
  }
}

/** Adds a turn of the conversation; its text is a node that grows. */
function turn(who, text = "") {
  const article = add($("log"), "article");
  const name = add(article, "h2", who);
  const body = add(article, "div", "", "text");
  const node = document.createTextNode(visible(text));
  body.append(node);
  return { article, name, body, node };
}

/** Changes the conversation, and stays at its end where the reader is. */
function change(how) {
  const log = $("log");
  const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  how();
  if (follows) log.scrollTop = log.scrollHeight;
}

/** Shows a whole text: its code in blocks of their own; headings, bold words and code in lines without their marks. */
function block(body, text) {
  body.replaceChildren();
  text.split(/^```.*\n?/m).forEach((part, at) => {
    const shown = visible(part.trimEnd().replace(/^\n+/, ""));
    if (at % 2) return add(body, "pre", shown);
    const place = add(body, "div");
    for (const each of shown.split(/(`[^`\n]+`|\*\*[^\s*][^*\n]*\*\*|^#{1,6} .+$)/m)) {
      const mark = /^(`|\*\*|#+ )/.exec(each)?.[0];
      if (!mark || each.length < 3) place.append(each);
      else add(place, mark === "`" ? "code" : "b", mark[0] === "#" ? each.slice(mark.length) : each.slice(mark.length, -mark.length));
    }
  });
}

/** Shows which buttons do something now. */
function arrange() {
  $("send").disabled = $("again").disabled = $("clear").disabled = running !== null;
  if (!messages.length) $("again").disabled = $("clear").disabled = true;
  $("stop").disabled = running === null;
  $("files").hidden = $("model").selectedOptions[0]?.dataset.media !== "true";
  $("log").setAttribute("aria-busy", String(running !== null));
}

/** Asks for the answer to what the conversation ends with, and shows it as it comes. */
async function answer() {
  const abort = (running = new AbortController());
  const shown = turn("…");
  const note = add(shown.article, "p", "…", "figures");
  let text = "";
  let thoughts = null;
  let whole = false;
  let problem = "";
  $("problem").textContent = "";
  $("log").scrollTop = $("log").scrollHeight;
  arrange();
  try {
    const body = JSON.stringify({ model: $("model").value, messages, stream: true });
    const response = await request("v1/chat/completions", { method: "POST", body, signal: abort.signal });
    for await (const line of lines(response.body)) {
      if (line.startsWith(": ") && !text) note.textContent = line.slice(2);
      if (!line.startsWith("data: ")) continue;
      if (line === "data: [DONE]") {
        whole = true;
        continue;
      }
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(event.error.message);
      shown.name.textContent = visible(event.model);
      const delta = event.choices[0].delta;
      if (delta.reasoning_content) {
        if (!thoughts) {
          const folded = document.createElement("details");
          add(folded, "summary", "Thoughts");
          shown.body.before(folded);
          thoughts = document.createTextNode("");
          add(folded, "div", thoughts, "text");
        }
        change(() => thoughts.appendData(visible(delta.reasoning_content)));
      }
      if (delta.content) {
        text += delta.content;
        change(() => shown.node.appendData(visible(delta.content)));
      }
      if (event.timings) note.textContent = figures(event);
    }
    if (!whole) throw new Error("the connection ended before the answer did");
  } catch (error) {
    problem = abort.signal.aborted ? "" : error.message;
    note.textContent = problem ? "broken off" : "stopped";
  }
  running = null;
  change(() => block(shown.body, text));
  if (text || whole) messages.push({ role: "assistant", content: text });
  else takeBack(shown.article);
  $("problem").textContent = visible(problem);
  arrange();
  look();
}

/** Puts a question that has no answer back into the box. */
function takeBack(article) {
  const parts = [messages.pop().content].flat();
  const content = parts.map((each) => (typeof each === "string" ? each : each.text || "")).join("");
  attach([...parts.filter((each) => each.image_url), ...attached]);
  article.previousElementSibling.remove();
  article.remove();
  if (!$("text").value) $("text").value = content;
}

/** Returns the figures of an answer, in a line. */
function figures(event) {
  const { speculation, timings } = event;
  const parts = [];
  if (timings.tokens_per_s) parts.push(`${timings.tokens_per_s.toFixed(1)} tokens/s`);
  parts.push(speculation.line);
  if (event.choices[0].finish_reason === "length") parts.push("cut off at the limit");
  return parts.join(" · ");
}

/** Attaches files to the next message, in place of others, and lists them; a button removes each. */
function attach(parts) {
  attached = parts;
  $("attached").replaceChildren();
  for (const each of parts) {
    const item = add($("attached"), "li", visible(`${each.name} `));
    const button = add(item, "button", "Remove");
    button.type = "button";
    button.setAttribute("aria-label", visible(`Remove ${each.name}`));
    button.addEventListener("click", () => attach(attached.filter((other) => other !== each)));
  }
}

/** Sends what is in the box, and the files with it. */
async function send() {
  await reading;
  const text = $("text").value.trim();
  if (running || !(text || attached.length)) return;
  const words = text ? [{ type: "text", text }] : [];
  messages.push({ role: "user", content: attached.length ? [...attached, ...words] : text });
  turn("You", [...attached.map((each) => `[${each.name}]`), text].join(" "));
  $("text").value = "";
  attach([]);
  answer();
}

/** Returns a file as a part of a message. */
async function part(file) {
  const reader = new FileReader();
  reader.readAsDataURL(file);
  await new Promise((done) => reader.addEventListener("loadend", done));
  return { type: "image_url", image_url: { url: reader.result }, name: file.name };
}

/** Lists the models; the one that was chosen stays so. */
async function list() {
  const { data } = await (await request("v1/models")).json();
  const chosen = $("model").value;
  $("model").replaceChildren();
  for (const each of data) {
    const state = each.status.value;
    const name = visible(state === "unloaded" ? each.id : `${each.id} (${state})`);
    const option = add($("model"), "option", name);
    option.value = each.id;
    option.dataset.media = (each.capabilities || []).some((word) => word === "vision" || word === "audio");
  }
  $("model").value = data.some((each) => each.id === chosen) ? chosen : data.length ? data[0].id : "";
  arrange();
}

/** Returns the sums of the metrics, by name and by the label that is asked for. */
function sums(text, label) {
  const found = {};
  for (const [, name, labels, value] of text.matchAll(/^localspec_(\w+?)(?:\{(.*)\})? (\S+)$/gm)) {
    const of = labels && labels.match(new RegExp(`${label}="([^"]*)"`));
    if (of) (found[name] ??= {})[of[1]] = (found[name][of[1]] || 0) + Number(value);
  }
  return found;
}

/** Looks at what the server does. */
async function look() {
  if (looking) return;
  looking = true;
  try {
    const metrics = await (await request("metrics", { signal: AbortSignal.timeout(GIVE_UP_MS) })).text();  // needs the key
    const health = await (await request("health")).json();
    $("login").hidden = true;
    $("forget").hidden = !key;
    const states = Object.entries(health.models).map(([name, each]) => `${name} ${STATES[each.status] || each.status}`);
    $("state").textContent = visible([...states, health.reason || ""].filter(Boolean).join(", "));
    $("requests").textContent = `${health.running} running, ${health.waiting} waiting`;
    if (listed !== states.join()) {
      await list();
      listed = states.join();
    }
    const { tokens_total: tokens = {}, seconds_total: seconds = {} } = sums(metrics, "kind");
    const { drafted_tokens_total: drafted = {}, accepted_tokens_total: accepted = {} } = sums(metrics, "drafter");
    const speed = tokens.completion / seconds.decode;
    $("speed").textContent = speed ? `${speed.toFixed(1)} tokens/s` : "–";
    $("tokens").textContent = (tokens.completion || 0).toLocaleString("en");
    $("drafters").replaceChildren();
    for (const [name, count] of Object.entries(drafted)) {
      if (!count) continue;
      const row = add($("drafters"), "tr");
      add(row, "th", name).scope = "row";
      add(row, "td", count.toLocaleString("en"));
      add(row, "td", `${Math.round((100 * accepted[name]) / count)} %`);
    }
  } catch (error) {
    $("state").textContent = visible(error.message);
  }
  looking = false;
}

/** Stops the answer under way. */
function stop() {
  if (running) running.abort();
}

/** Takes a key, and keeps it as long as this tab is open. */
function enter(value) {
  key = value;
  if (value) sessionStorage.setItem("key", value);
  else sessionStorage.removeItem("key");
  $("key").value = listed = "";
  look();
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") stop();
});
$("files").addEventListener("change", () => {
  const parts = Promise.all([...$("files").files].map(part));
  $("files").value = "";
  reading = reading.then(async () => attach([...attached, ...(await parts)]));
});
$("model").addEventListener("change", arrange);
$("stop").addEventListener("click", stop);
$("again").addEventListener("click", () => {
  if (messages.at(-1).role === "assistant") {
    messages.pop();
    $("log").lastElementChild.remove();
  }
  answer();
});
$("clear").addEventListener("click", () => {
  messages = [];
  reading = reading.then(() => attach([]));
  $("log").replaceChildren();
  $("problem").textContent = "";
  arrange();
  $("text").focus();
});
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  enter($("key").value.replace(/[^!-~]/g, "")); // what a header can hold
});
$("forget").addEventListener("click", () => enter(""));
setInterval(() => document.hidden || look(), LOOK_EVERY_MS);
look();
