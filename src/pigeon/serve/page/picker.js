// A window in which one of many things is chosen: a field that filters, and a list that arrow keys walk through.

import { element, openWindow } from "./dom.js";

const MOST_SHOWN = 300;

// `rows` are { key, group, name, about }; `chosen(key)` is called with the one that was taken.
export function pick(title, rows, current, chosen) {
  const input = element("input", { type: "text", role: "combobox", placeholder: "Type to filter", "aria-label": "Filter", "aria-expanded": "true", "aria-controls": "picker", autocomplete: "off", spellcheck: false });
  const list = element("ul", { id: "picker", class: "picker", role: "listbox", "aria-label": title });
  const opened = openWindow(title, input, list);
  let at = 0;
  const options = () => [...list.querySelectorAll("[role=option]")];
  const take = (key) => { opened.close(); chosen(key); };
  const mark = (scroll = true) => {
    options().forEach((row, number) => row.classList.toggle("chosen", number === at));
    const row = options()[at];
    if (row) input.setAttribute("aria-activedescendant", row.id); else input.removeAttribute("aria-activedescendant");
    if (scroll) row?.scrollIntoView({ block: "nearest" });
  };
  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matching = rows.filter((row) => { const text = `${row.key} ${row.name}`.toLowerCase(); return words.every((word) => text.includes(word)); });
    const shown = matching.slice(0, MOST_SHOWN);
    let group = null;
    list.replaceChildren(...shown.flatMap((row, number) => {
      const head = row.group === group ? [] : [element("li", { class: "group", role: "presentation" }, row.group)];
      group = row.group;
      return [...head, element("li", { id: `picker-${number}`, role: "option", "aria-selected": String(row.key === current), title: row.key, onclick: () => take(row.key) },
        element("span", { class: "name" }, row.name), row.about ? element("span", { class: "note" }, row.about) : null)];
    }));
    if (matching.length > shown.length) list.append(element("li", { class: "hint", role: "presentation" }, `${matching.length - shown.length} more: type to filter`));
    if (!shown.length) list.append(element("li", { class: "hint", role: "presentation" }, "Nothing matches"));
    at = words.length ? 0 : Math.max(0, shown.findIndex((row) => row.key === current));
    mark();
  };
  input.addEventListener("input", show);
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const most = options().length;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); if (most) at = (at + (event.key === "ArrowDown" ? 1 : -1) + most) % most; mark(); }
    else if (event.key === "Enter") { event.preventDefault(); options()[at]?.click(); }
  });
  show();
  input.focus();
}
