// What each word does for a label: coloured words, a sentence and a table that say the same without colours.

import { counted, element, percent, signed } from "./dom.js";

const VISIBLE = 0.04; // of the strongest word's effect; fainter ones stay uncoloured
const NAMED = 3; // words of each kind in the sentence

/** The view of an answer to /explain. `texts` are the sides as they were sent. */
export function effects(answer, texts, isProbability) {
  const { measure, strongest, bySaturation } = chooseMeasure(answer.parts);
  return [
    ...texts.map((text, side) => coloured(text, side ? "text_pair" : "text", answer, measure, strongest)),
    legend(answer.label),
    element("p", {}, sentence(answer, measure, strongest)),
    ...notes(answer, bySaturation).map((note) => element("p", { class: "hint" }, note)),
    answer.parts.length > 0 && table(answer, isProbability),
  ].filter(Boolean);
}

/** Scores, unless they hardly move: of a model that is sure whatever is left out, only logits tell words apart. */
function chooseMeasure(parts) {
  const most = (name) => Math.max(0, ...parts.map((part) => Math.abs(part[name])));
  const bySaturation = most("score_drop") < 0.01 && most("logit_drop") > 0;
  const measure = bySaturation ? "logit_drop" : "score_drop";
  return { measure, strongest: most(measure), bySaturation };
}

function coloured(text, side, answer, measure, strongest) {
  const characters = Array.from(text); // offsets count code points
  const slice = (start, end) => characters.slice(start, end).join("");
  const line = element("p", { class: "words", dir: "auto" });
  let at = 0;
  for (const part of answer.parts.filter((each) => each.side === side)) {
    line.append(slice(at, part.start), word(slice(part.start, part.end), part[measure], strongest, answer.label));
    at = part.end;
  }
  const rest = slice(at, characters.length);
  line.append(answer.truncated && rest.trim() ? element("span", { class: "unread" }, rest) : rest);
  return line;
}

function word(text, drop, strongest, label) {
  const strength = strongest > 0 ? Math.abs(drop) / strongest : 0;
  if (strength < VISIBLE) return text;
  const kind = drop > 0 ? "for" : "against";
  const mark = element("mark", { class: kind, title: `${kind} ${label}: ${signed(drop, 3)}` }, text);
  mark.style.setProperty("--strength", strength.toFixed(3));
  return mark;
}

function legend(label) {
  return element(
    "p",
    { class: "legend" },
    element("span", { class: "key for" }, `speaks for ${label}`),
    element("span", { class: "key against" }, "speaks against it"),
  );
}

function sentence(answer, measure, strongest) {
  const visible = answer.parts.filter((part) => strongest > 0 && Math.abs(part[measure]) >= VISIBLE * strongest);
  if (!visible.length) return "No word of this text makes a difference.";
  const named = (parts) => parts.slice(0, NAMED).map((part) => `\u201c${part.text}\u201d`).join(", ");
  const ordered = visible.toSorted((a, b) => b[measure] - a[measure]);
  const forIt = ordered.filter((part) => part[measure] > 0);
  const against = ordered.filter((part) => part[measure] < 0).reverse();
  return [
    forIt.length ? `Most for ${answer.label}: ${named(forIt)}.` : `No word clearly speaks for ${answer.label}.`,
    against.length ? `Most against it: ${named(against)}.` : "No word clearly speaks against it.",
  ].join(" ");
}

function notes(answer, bySaturation) {
  return [
    bySaturation && "The probability hardly moves whatever is left out, so the colours show the logit.",
    answer.words_per_part > 1 &&
      `The text has ${counted(answer.words, "word")}, more than are tried one by one: ` +
        `${answer.words_per_part} at a time were left out.`,
    answer.truncated && "The model did not read the whole text; what is grey was cut.",
  ].filter(Boolean);
}

function table(answer, isProbability) {
  const score = (value) => (isProbability ? `${signed(100 * value, 1)} points` : signed(value, 3));
  const whole = isProbability ? percent(answer.score) : answer.score.toFixed(3);
  return element(
    "details",
    {},
    element("summary", {}, "Every word as a table"),
    element(
      "table",
      { class: "numbers" },
      element("caption", {}, `What ${answer.label} (${whole}) loses without each word`),
      element("thead", {}, row("th", ["Word", isProbability ? "Probability" : "Score", "Logit"], "col")),
      element(
        "tbody",
        {},
        answer.parts.map((part) => row("td", [part.text, score(part.score_drop), signed(part.logit_drop, 3)])),
      ),
    ),
  );
}

const row = (kind, cells, scope) => element("tr", {}, cells.map((cell) => element(kind, { scope }, cell)));
