// Typeset every formula that the build has marked (pymdownx.arithmatex, generic mode).
for (const element of document.querySelectorAll(".arithmatex")) {
  const text = element.textContent.trim();
  const displayMode = text.startsWith("\\[");
  katex.render(text.slice(2, -2), element, { displayMode, throwOnError: false });
}
