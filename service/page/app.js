// The page: what is asked for, and where its answers go.

import { byId, counted, element, milliseconds } from "./dom.js";
import { card, fault, sides, timings } from "./results.js";
import { Service, ServiceError } from "./service.js";
import { snippets } from "./snippets.js";
import { MAX_FILE_BYTES, fromLines, fromRows, isTable, parseTable, readFile } from "./texts.js";

/** Every service here is asked each time and has its own column; today a page has one, its own. */
const services = [new Service("", document.baseURI)];

const SHOWN_LABELS = 24; // of those that the model can answer with

let table = null; // rows of a CSV, while one is chosen
let running = new AbortController();

const say = (text) => byId("status").replaceChildren(text);

/** The inputs as they stand. */
function inputs() {
  if (table === null) return fromLines(byId("texts").value);
  const rows = byId("named").checked ? table.slice(1) : table;
  return fromRows(rows, Number(byId("column").value), Number(byId("pair").value));
}

/** The first so many of them that a request may have. */
const within = (texts) => texts.slice(0, Math.min(...services.map((each) => each.facts?.limits.max_texts ?? Infinity)));

function showCount() {
  const all = inputs();
  const sent = within(all);
  const rest = sent.length < all.length ? `; the first ${sent.length}, as many as a request may have, are sent` : "";
  byId("count").textContent = all.length ? counted(all.length, "text") + rest : "";
}

function showProblem(...nodes) {
  byId("problem").replaceChildren(...nodes);
}

function refused(error) {
  if (!(error instanceof ServiceError)) throw error;
  showProblem(fault(error));
  if (error.type !== "unauthorized") return;
  byId("access").hidden = false;
  byId("key").focus();
}

/** Learn what is served; a service that wants a key or is starting is asked again with the first request. */
async function introduce() {
  try {
    const models = await Promise.all(services.map((service) => service.info()));
    byId("model").replaceChildren(...models.map(summary));
    byId("labels").replaceChildren(...models[0].labels.slice(0, SHOWN_LABELS).map(badge));
    if (models[0].labels.length > SHOWN_LABELS) byId("labels").append(badge("\u2026"));
    document.title = `${models.map(({ name }) => name).join(", ")} \u00b7 robal`;
    showCount();
  } catch (error) {
    if (error.type === "unauthorized") byId("access").hidden = false;
    else refused(error);
  }
}

const badge = (text) => element("li", { class: "badge" }, text);

function summary({ name, family, precision, labels, max_length: most }) {
  const facts = [`${family}, ${precision}`, counted(labels.length, "label"), `up to ${counted(most, "token")}`];
  return element("span", {}, element("strong", {}, name), ` ${facts.join(" \u00b7 ")} `);
}

async function classify() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  showProblem();
  for (const service of services) service.key = byId("key").value.trim();
  if (services.some(({ facts }) => facts === null)) await introduce();
  const texts = within(inputs());
  if (!texts.length) {
    say("");
    showProblem(element("p", {}, "There is no text yet: type one, or choose a file."));
    (table === null ? byId("texts") : byId("column")).focus();
    return;
  }
  byId("answers").setAttribute("aria-busy", "true");
  say(`Classifying ${counted(texts.length, "text")} \u2026`);
  try {
    const runs = await Promise.all(
      services.map(async (service) => ({ service, answer: await service.classify(texts, signal) })),
    );
    show(texts, runs);
  } catch (error) {
    if (error.name === "AbortError") return; // a later request took its place
    say("");
    refused(error);
  } finally {
    if (running.signal === signal) byId("answers").removeAttribute("aria-busy");
  }
}

function show(texts, runs) {
  const [{ service, answer }] = runs;
  const { usage } = answer.body;
  const amount = `${counted(usage.texts, "text")}, ${counted(usage.tokens, "token")}`;
  say(`${amount}, answered in ${milliseconds(answer.waitedMs)}.`);
  byId("timings").replaceChildren(...runs.flatMap(timings));
  byId("results").replaceChildren(...texts.map((text, number) => card(text, number, runs)));
  byId("empty").hidden = true;
  byId("calls").hidden = false;
  byId("snippets").replaceChildren(...snippets(service.url("classify"), texts, service.key !== "", say));
}

async function chooseFile(file) {
  forgetTable();
  showProblem();
  if (!file) return;
  try {
    const limit = Math.min(MAX_FILE_BYTES, services[0].facts?.limits.max_body_bytes ?? Infinity);
    const text = await readFile(file, limit);
    if (isTable(file.name)) showTable(parseTable(text));
    else byId("texts").value = text;
  } catch (error) {
    byId("file").value = "";
    showProblem(element("p", {}, error.message));
  }
  showCount();
}

function showTable(rows) {
  table = rows;
  byId("typing").hidden = true;
  byId("table").hidden = false;
  showColumns();
  byId("column").focus();
}

/** The columns by name, and the first rows of what is chosen. */
function showColumns() {
  const names = table[0].map((cell, place) => (byId("named").checked && cell.trim()) || `column ${place + 1}`);
  const options = () => names.map((name, place) => element("option", { value: place }, name));
  const guess = Math.max(names.findIndex((name) => /text|sentence|review|comment|message/i.test(name)), 0);
  byId("column").replaceChildren(...options());
  byId("pair").replaceChildren(element("option", { value: -1 }, "none"), ...options());
  byId("column").value = guess;
  showPreview();
}

function showPreview() {
  const first = inputs().slice(0, 3);
  byId("preview").replaceChildren(
    element("p", { class: "hint" }, first.length ? "Its first texts:" : "This column has no text."),
    element("ul", {}, first.map((input) => element("li", {}, sides(input).join(" | ")))),
  );
  showCount();
}

function forgetTable() {
  table = null;
  byId("typing").hidden = false;
  byId("table").hidden = true;
}

function clear() {
  running.abort();
  forgetTable();
  byId("texts").value = "";
  byId("file").value = "";
  byId("results").replaceChildren();
  byId("timings").replaceChildren();
  byId("calls").hidden = true;
  byId("empty").hidden = false;
  byId("answers").removeAttribute("aria-busy");
  showProblem();
  say("");
  showCount();
  byId("texts").focus();
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  classify();
});
byId("ask").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    classify();
  }
});
byId("texts").addEventListener("input", showCount);
byId("file").addEventListener("change", () => chooseFile(byId("file").files[0]));
byId("named").addEventListener("change", showColumns);
byId("column").addEventListener("change", showPreview);
byId("pair").addEventListener("change", showPreview);
byId("clear").addEventListener("click", clear);
showCount();
introduce();
