"use strict";
(() => {
  // What comes from one line of the program is lit together.
  let lit = "";
  function light(id) {
    if (id === lit) return;
    for (const old of document.querySelectorAll(".lit")) old.classList.remove("lit");
    lit = id;
    if (!id) return;
    for (const one of document.querySelectorAll(`[data-line="${CSS.escape(id)}"]`)) one.classList.add("lit");
  }
  const lineOf = (target) => (target instanceof Element && target.closest("[data-line]")?.dataset.line) || "";
  document.addEventListener("mouseover", (event) => light(lineOf(event.target)));
  document.addEventListener("focusin", (event) => light(lineOf(event.target)));

  // What a link leads to may lie in parts that are closed.
  function open() {
    let id = "";
    try { id = decodeURIComponent(location.hash.slice(1)); } catch { return; }
    const target = id && document.getElementById(id);
    if (!target) return;
    for (let one = target; one; one = one.parentElement) if (one instanceof HTMLDetailsElement) one.open = true;
    target.scrollIntoView({ block: "center" });
  }
  window.addEventListener("hashchange", open);
  if (location.hash) open();

  // All is on paper.
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const one of closed) one.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const one of closed) one.open = false;
  });

  const filter = document.getElementById("filter");
  filter?.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    const rows = [...document.querySelectorAll("#guard-table tbody tr")];
    let shown = 0;
    for (const row of rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
      shown += row.hidden ? 0 : 1;
    }
    document.getElementById("filtered").textContent = wanted ? `${shown} of ${rows.length}` : "";
  });

  for (const chart of document.querySelectorAll(".flames")) {
    const show = (from, span) => {
      chart.style.setProperty("--from", from);
      chart.style.setProperty("--span", span);
    };
    chart.addEventListener("click", (event) => {
      const bar = event.target.closest(".bar");
      if (!bar) return show(0, 1);
      const of = (name) => Number(bar.style.getPropertyValue(name));
      const same = Number(chart.style.getPropertyValue("--span")) === of("--width");
      return same ? show(0, 1) : show(of("--left"), of("--width"));
    });
    chart.addEventListener("keydown", (event) => {
      if (event.key === "Escape") show(0, 1);
    });
  }
})();
