// Light or dark as the reader has chosen, set before anything is drawn. Without a choice, the system decides.
try {
  const theme = localStorage.getItem("pigeon-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* a browser that keeps nothing follows the system */ }
