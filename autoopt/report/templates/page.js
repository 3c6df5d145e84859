"use strict";

const UNITS = { kB: 1e3, MB: 1e6, GB: 1e9 };

// The ratio to the source behind "1.7x faster" or "4 % smaller"; a smaller one is better.
function ratioOf(amount, unit, word) {
  const worse = /slower|larger|fewer|lower/.test(word);
  if (unit === "x") return worse ? amount : 1 / amount;
  return 1 + (worse ? amount : -amount) / 100;
}

function sortKey(cell) {
  const text = cell.textContent.trim();
  const change = text.match(/^([\d.]+)(x| %).* (faster|slower|smaller|larger|less|more|fewer|higher|lower)\b/);
  if (change) return ratioOf(Number(change[1]), change[2], change[3]);
  if (/^(same|undecided) /.test(text)) return 1;
  const match = text.match(/^(-?[\d.]+(?:e[-+]?\d+)?)\s*(kB|MB|GB)?/i);
  if (match) return Number(match[1]) * (UNITS[match[2]] || 1);
  return text === "-" || text === "" || text === "undecided" ? Infinity : text;
}

function compare(a, b) {
  if (typeof a === typeof b) return typeof a === "number" ? (a === b ? 0 : a < b ? -1 : 1) : a.localeCompare(b);
  return typeof a === "number" ? -1 : 1;
}

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.setAttribute("aria-sort", "none");
    head.tabIndex = 0;
    const sort = () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => compare(sortKey(a.cells[column]), sortKey(b.cells[column])) * (descending ? -1 : 1));
      table.tBodies[0].append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
  });
}

function makeFilterable(table, input) {
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
}

function chooseModels(controls) {
  const field = (name) => document.getElementById(name);
  const rows = [...document.querySelectorAll("tr[data-model]")];
  const filter = () => {
    const words = field("only-model").value.toLowerCase().split(/\s+/);
    const tag = field("only-tag").value;
    for (const row of rows) {
      const { model, tags } = row.dataset;
      const named = words.every((word) => model.toLowerCase().includes(word));
      const fits = named && (!tag || tags.split(" ").includes(tag));
      row.hidden = !fits || (field("only-worse").checked && !("worse" in row.dataset));
      for (const part of [field(`model-${model}`), field(`plots-${model}`)]) if (part) part.hidden = row.hidden;
    }
  };
  for (const event of ["input", "change"]) controls.addEventListener(event, filter);
}

function showTips() {
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  document.addEventListener("pointermove", (event) => {
    const mark = event.target.closest?.("figure svg [aria-roledescription][aria-label]:not(.mark-group)");
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.getAttribute("aria-label");
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 8 : event.clientY + 18}px`;
  });
}

// A page that `autoopt ui` serves leads back to the list of runs; a file does not.
function linkHome() {
  if (location.protocol !== "http:" || !/^\/(run|zoo)\//.test(location.pathname)) return;
  const link = Object.assign(document.createElement("a"), { href: "/", textContent: "autoopt" });
  document.querySelector("h1").prepend(link, " · ");
}

document.querySelectorAll("table.sortable").forEach(makeSortable);
document.querySelectorAll("input[type=search]").forEach((input) => {
  const table = document.getElementById(input.getAttribute("aria-controls"));
  if (table) makeFilterable(table, input);
});
document.querySelectorAll("#choose-models").forEach(chooseModels);
showTips();
linkHome();
