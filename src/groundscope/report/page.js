"use strict";
// Selecting a span lights the passages the model looked at while it read the span. Hover and focus show it for
// the moment; a click, Enter or Space keeps it; Escape lets go. Without this script the list of spans says the same.
for (const verdict of document.querySelectorAll(".verdict")) {
  const marks = [...verdict.querySelectorAll(".answer [data-span]")];
  const entries = [...verdict.querySelectorAll(".spans [data-span]")];
  const passages = [...verdict.querySelectorAll(".passage")];
  let kept = null;

  const show = (span) => {
    for (const item of [...marks, ...entries]) item.classList.toggle("on", item.dataset.span === span);
    const entry = entries.find((item) => item.dataset.span === span);
    const weights = new Map(
      [...(entry ? entry.querySelectorAll("[data-passage]") : [])].map((item) => [
        item.dataset.passage,
        Number(item.dataset.weight),
      ]),
    );
    for (const passage of passages) {
      const weight = weights.get(passage.dataset.passage);
      passage.classList.toggle("lit", weight !== undefined);
      passage.querySelector(".share").textContent =
        weight === undefined ? "" : `${Math.round(100 * weight)} % of the attention`;
      if (weight === undefined) delete passage.dataset.strength;
      else passage.dataset.strength = Math.max(1, Math.min(4, Math.ceil(4 * weight)));
    }
  };
  const keep = (span) => {
    kept = span;
    for (const item of marks) item.setAttribute("aria-pressed", String(item.dataset.span === span));
    show(span);
  };
  const toggle = (span) => keep(span === kept ? null : span);

  for (const item of [...marks, ...entries]) {
    const span = item.dataset.span;
    item.addEventListener("mouseenter", () => show(span));
    item.addEventListener("mouseleave", () => show(kept));
    item.addEventListener("click", (event) => {
      if (!event.target.closest("a")) toggle(span);
    });
  }
  for (const item of marks) {
    item.addEventListener("focus", () => show(item.dataset.span));
    item.addEventListener("blur", () => show(kept));
    item.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle(item.dataset.span);
    });
  }
  verdict.addEventListener("keydown", (event) => {
    if (event.key === "Escape") keep(null);
  });
}
