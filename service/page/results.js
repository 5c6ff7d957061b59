// One card a text: what each service said of it, and on request the words behind the answer.

import { counted, element, milliseconds, percent } from "./dom.js";
import { effects } from "./effects.js";
import { ServiceError } from "./service.js";

const SHOWN_LABELS = 5;

/** The texts of one input. */
export const sides = (input) => (typeof input === "string" ? [input] : [input.text, input.text_pair]);

/**
 * A card for one input.
 * @param number its place among the inputs.
 * @param runs one for each service that was asked: `{service, answer}`; a column each.
 */
export function card(input, number, runs) {
  return element(
    "li",
    { class: "card" },
    sides(input).map((text) => element("p", { class: "text", dir: "auto" }, text)),
    element(
      "div",
      { class: "outcomes" },
      runs.map(({ service, answer }, column) =>
        outcome(service, answer.body.results[number], input, `${number}-${column}`),
      ),
    ),
  );
}

function outcome(service, result, input, id) {
  const title = service.name !== "" && element("h3", {}, service.name);
  const box = element("div", { class: "outcome" }, title);
  if (result.error) {
    box.append(fault(result.error));
    return box;
  }
  const isProbability = service.facts?.problem_type !== "regression";
  box.append(verdict(result, isProbability));
  if (isProbability) box.append(bars(result.scores));
  box.append(explanation(service, result, input, `words-${id}`, isProbability));
  return box;
}

function verdict(result, isProbability) {
  const badges = [
    element("span", { class: "badge" }, counted(result.tokens, "token")),
    result.truncated && element("span", { class: "badge warn" }, "truncated: the model did not read all of it"),
    result.given && element("span", { class: "badge" }, `given: ${result.given.join(", ") || "none"}`),
  ].filter(Boolean);
  return element(
    "p",
    { class: "verdict" },
    element("strong", {}, result.label),
    element("span", { class: "score" }, isProbability ? percent(result.score) : result.score.toFixed(4)),
    badges,
  );
}

function bars(scores) {
  const table = (rows) => element("table", { class: "bars" }, element("tbody", {}, rows.map(bar)));
  const rest = scores.slice(SHOWN_LABELS);
  const shown = table(scores.slice(0, SHOWN_LABELS));
  if (!rest.length) return shown;
  const more = element("details", {}, element("summary", {}, `${counted(rest.length, "more label")}`), table(rest));
  return element("div", {}, shown, more);
}

function bar({ label, score }, place) {
  const fill = element("span", { class: "fill" });
  fill.style.setProperty("--share", score);
  return element(
    "tr",
    { class: place === 0 ? "best" : null },
    element("th", { scope: "row" }, label),
    element("td", { class: "track", "aria-hidden": "true" }, fill),
    element("td", { class: "value" }, percent(score)),
  );
}

/** A button that opens the words behind the answer; asked for when it is opened first, and for each other label. */
function explanation(service, result, input, id, isProbability) {
  const view = element("div", { class: "view", role: "status" });
  const labels = result.scores.map(({ label }) => element("option", {}, label));
  const choice = element("select", { id: `${id}-label` }, labels);
  const panel = element(
    "div",
    { id, class: "effects", hidden: true },
    element("label", { for: choice.id }, "Label to explain"),
    choice,
    view,
  );
  const ask = async () => {
    const label = choice.value;
    view.replaceChildren(element("p", { class: "hint" }, "Leaving out each word in turn \u2026"));
    let shown;
    try {
      const answer = await service.explain(input, label);
      shown = effects(answer.body, sides(input), isProbability);
      shown.push(element("p", { class: "hint" }, cost(answer)));
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      shown = [fault(error)];
    }
    if (choice.value === label) view.replaceChildren(...shown); // else a later choice is on its way
  };
  let asked = false;
  const toggle = () => {
    panel.hidden = !panel.hidden;
    button.setAttribute("aria-expanded", String(!panel.hidden));
    if (!asked) ask();
    asked = true;
  };
  choice.addEventListener("change", ask);
  const button = element(
    "button",
    { type: "button", class: "small", "aria-expanded": "false", "aria-controls": id, onclick: toggle },
    "Why? Show the words",
  );
  return element("div", {}, button, panel);
}

function cost({ body, waitedMs }) {
  return `${counted(body.usage.texts, "text")} computed for this, in ${milliseconds(waitedMs)}.`;
}

/** An error of the service: its type, its sentence, and its place. */
export function fault(error) {
  return element(
    "div",
    { class: "fault" },
    element("strong", {}, error.type),
    element("p", {}, error.message),
    error.field && element("p", {}, "At ", element("code", {}, error.field)),
    error.retryAfterS && element("p", {}, `Another try makes sense in ${error.retryAfterS} s.`),
    error.requestId && element("p", { class: "hint" }, "Request ", element("code", {}, error.requestId)),
  );
}

/** Where the time of a service's answer went. */
export function timings({ service, answer: { stages, waitedMs } }) {
  const around = Math.max(stages.total - stages.tokenize - stages.queue - stages.engine, 0);
  const rows = [
    ["tokenize", stages.tokenize],
    ["queue", stages.queue],
    ["engine", stages.engine],
    ["other", around],
    ["network, browser", Math.max(waitedMs - stages.total, 0)],
  ];
  const track = element("div", { class: "stages", "aria-hidden": "true" });
  const list = element("dl", { class: "stage-list" });
  rows.forEach(([name, ms], place) => {
    const piece = element("span", { class: `stage-${place}` });
    piece.style.setProperty("flex-grow", ms.toFixed(4));
    track.append(piece);
    list.append(
      element("div", {}, element("dt", { class: `stage-${place}` }, name), element("dd", {}, milliseconds(ms))),
    );
  });
  return [service.name !== "" && element("h3", {}, service.name), track, list].filter(Boolean);
}
