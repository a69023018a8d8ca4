"use strict";
(function () {
	// The page is fetched anew every second, and what differs is put in its place.
	// So focus, scrolling and what is selected stay, and a screen reader hears of
	// the live region only when that says something new.
	const hold = document.getElementById("hold"), fresh = document.getElementById("fresh"), main = document.querySelector("main");
	let held = false, failed = 0;

	function update(old, now) {
		if (old.nodeType !== now.nodeType || old.nodeName !== now.nodeName) {
			old.replaceWith(now.cloneNode(true));
			return;
		}
		if (old.nodeType !== Node.ELEMENT_NODE) {
			if (old.nodeValue !== now.nodeValue) old.nodeValue = now.nodeValue;
			return;
		}
		for (const a of Array.from(old.attributes)) if (!now.hasAttribute(a.name)) old.removeAttribute(a.name);
		for (const a of now.attributes) if (old.getAttribute(a.name) !== a.value) old.setAttribute(a.name, a.value);
		while (old.childNodes.length > now.childNodes.length) old.lastChild.remove();
		for (let i = 0; i < now.childNodes.length; i++) {
			if (i < old.childNodes.length) update(old.childNodes[i], now.childNodes[i]);
			else old.append(now.childNodes[i].cloneNode(true));
		}
	}

	async function tick() {
		if (!held && !document.hidden) {
			try {
				const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
				if (!answer.ok) throw new Error(answer.status);
				const now = new DOMParser().parseFromString(await answer.text(), "text/html");
				if (!held) {
					update(main, now.querySelector("main"));
					fresh.textContent = now.getElementById("fresh").textContent;
					document.title = now.title;
				}
				failed = 0;
			} catch (e) {
				if (++failed === 3) fresh.textContent = "No answer from the program. " + fresh.textContent;
			}
		}
		setTimeout(tick, 1000);
	}

	hold.hidden = false;
	hold.addEventListener("click", function () {
		held = !held;
		hold.setAttribute("aria-pressed", held);
	});
	setTimeout(tick, 1000);
})();
