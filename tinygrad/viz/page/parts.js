// What all views are made of: elements, numbers for people, questions to the server, source text in colours.
"use strict";

/** Makes an element. Texts become text nodes, never markup: names in a recording may be anything. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

function scaled(value, step, units) {
  let unit = 0;
  while (Math.abs(value) >= step && unit + 1 < units.length) {
    value /= step;
    unit++;
  }
  return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toPrecision(3)} ${units[unit]}`.trim();
}
export const time = nanoseconds => scaled(nanoseconds, 1000, ["ns", "µs", "ms", "s"]);
/** Writes times that lie `step` apart: in the unit of the longest, with the digits that tell them apart. */
export function times(nanoseconds, step) {
  const longest = Math.max(...nanoseconds), power = longest < 1e3 ? 0 : longest < 1e6 ? 3 : longest < 1e9 ? 6 : 9;
  const digits = Math.min(9, Math.max(0, Math.ceil(power - Math.log10(step) - 1e-9)));
  return nanoseconds.map(t => t === 0 ? "0" : `${(t / 10 ** power).toFixed(digits)} ${["ns", "µs", "ms", "s"][power / 3]}`);
}
export const bytes = count => scaled(count, 1000, ["B", "KB", "MB", "GB", "TB"]);
export const count = number => scaled(number, 1000, ["", "K", "M", "G", "T"]);
export const rate = (number, unit) => scaled(number, 1000, ["", "K", "M", "G", "T"].map(p => `${p}${unit}`));

/** Asks the server; the message of a refusal becomes an error. */
export async function ask(path, query = {}) {
  const answer = await fetch(`api/${path}?${new URLSearchParams(query)}`);
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error ?? `status ${answer.status}`);
  return body;
}

export function valueOf(span, key) {
  const found = span.values.find(([name]) => name === key);
  return found ? found[1] : "";
}

/** Shows the words of `lines` next to the pointer; the first one stands out. */
export function showTip(event, lines) {
  const tip = document.getElementById("tip");
  if (!lines) {
    tip.hidden = true;
    return;
  }
  tip.replaceChildren(...lines.filter(Boolean).map((line, i) => make(i ? "div" : "b", {}, line)));
  tip.hidden = false;
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 16;
  const top = below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 12 : below;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

const kToken = new RegExp([
  /(?<c>\/\/[^\n]*|;[^\n]*|\/\*[\s\S]*?\*\/|"(?:[^"\\\n]|\\.)*")/,
  /(?<k>\b(?:define|declare|br|phi|call|ret|load|store|alloca|getelementptr|f?add|f?sub|f?mul|f?div|[iuf]cmp|icmp|select|label|ptr|void|float|double|half|bfloat|i\d+|for|if|else|while|return|int|long|short|char|bool|unsigned|signed|const|static|struct|__kernel|__global|global|restrict|__shared__|extern|kernel|device|threadgroup|fn|var|let|def|class|import|from|with|in|as|not|and|or|lambda|yield|True|False|None)\b)/,
  /(?<n>[%@$][\w.]+)/,
  /(?<v>\b(?:0x[\da-fA-F]+|\d+(?:\.\d*)?(?:e[+-]?\d+)?)[fuUlL]*\b)/,
].map(part => part.source).join("|"), "g");
const kMostColoured = 400000;  // characters: longer texts are shown plain

/** Returns source text as an element, with keywords, names, numbers and comments in colours. */
export function code(text) {
  const pre = make("pre", {class: "code"});
  if (text.length > kMostColoured) {
    pre.textContent = text;
    return pre;
  }
  let at = 0;
  for (const match of text.matchAll(kToken)) {
    if (match.index > at) pre.append(text.slice(at, match.index));
    const kind = Object.keys(match.groups).find(name => match.groups[name] !== undefined);
    pre.append(make("span", {class: kind}, match[0]));
    at = match.index + match[0].length;
  }
  pre.append(text.slice(at));
  return pre;
}

/** Returns the value of a colour of the page, for canvases. */
export const colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const kClasses = {
  memory: "LOAD STORE INDEX PARAM BUFFER BUFFER_VIEW DEFINE_GLOBAL DEFINE_LOCAL DEFINE_REG STAGE ASSIGN SLICE BUFFERIZE",
  loop: "RANGE END REDUCE REDUCE_AXIS IF ENDIF BARRIER SPECIAL LOOP",
  movement: "RESHAPE PERMUTE EXPAND PAD SHRINK FLIP STACK VECTORIZE GEP UNROLL CONTRACT CAST BITCAST MULTI MSELECT MSTACK",
  control: "SINK CONST VCONST NOOP UNIQUE DEVICE BIND DEFINE_VAR AFTER GROUP LINEAR SOURCE PROGRAM BINARY",
  call: "CALL KERNEL COPY CONTIGUOUS FUNCTION CUSTOM CUSTOMI WMMA ALLREDUCE COLLECTIVE",
};
const kClassOf = new Map(Object.entries(kClasses).flatMap(([name, ops]) => ops.split(" ").map(op => [op, name])));
export const classOf = op => kClassOf.get(op) ?? "math";
export const kClassNames = ["memory", "math", "loop", "movement", "call", "control"];
