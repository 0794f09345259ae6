// Applies the reader's choice of theme before the first paint. A classic script, because modules run after it.
(() => {
	try {
		const chosen = localStorage.getItem("stepkeep.theme");
		if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
	} catch {
		// Without storage the theme of the system is used.
		document.documentElement.removeAttribute("data-theme");
	}
})();
