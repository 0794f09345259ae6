/**
 * The form that starts a run: its fields come from the input that the workflow declares.
 */
import {
	area,
	field,
	get,
	go,
	h,
	inert,
	input,
	line,
	named,
	once,
	openDialog,
	post,
	put,
	readJson,
	select,
} from "../kit.js";

/** @param {{workflow?: string, version?: number, input?: any}} [given] */
export async function startDialog(given = {}) {
	const found = await get("/workflows", { limit: 200 });
	const names = [...new Set(found.definitions.map((one) => one.workflow))].sort();
	if (!names.length) {
		openDialog({
			title: "Start a run",
			body: h(
				"p",
				"No workflow is published yet. Publish one: ",
				h("code", "stepkeep publish FILE.yaml"),
				", or on the page Workflows.",
			),
		});
		return;
	}
	let chosen = given.workflow ?? names[0],
		/** @type {() => any} */
		read = () => undefined;
	const fields = h("div.stack.tight");
	const key = input(),
		labels = input({ placeholder: "team=a, region=eu" }),
		priority = input({ type: "number", step: "1", placeholder: "0" });
	const pick = select(
		names.map((one) => [one, line(one, 80)]),
		chosen,
		(name) => {
			chosen = name;
			void draw();
		},
	);

	async function draw() {
		const version = chosen === given.workflow ? given.version : undefined;
		const told = await get(version ? `/workflows/${named(chosen)}/versions/${version}` : `/workflows/${named(chosen)}`);
		const types = told.document.input_types ?? {};
		read = inputForm(fields, types, chosen === given.workflow ? given.input : undefined);
	}
	await draw();
	openDialog({
		title: "Start a run",
		label: "Start",
		done: "Started",
		body: [
			field("Workflow", pick),
			fields,
			h(
				"details",
				h("summary", "More"),
				h(
					"div.stack.tight",
					field("Business key", key, "At most one live run has this key."),
					field("Labels", labels, "NAME=TEXT, separated by commas"),
					field("Priority", priority, "Higher goes first."),
				),
			),
		],
		act: async () => {
			/** @type {Answers.NewRunBody} */
			const body = { workflow: chosen };
			if (chosen === given.workflow && given.version) body.version = given.version;
			const value = read();
			if (value !== undefined) body.input = value;
			if (key.value.trim()) body.business_key = key.value.trim();
			if (priority.value.trim()) body.priority = Number(priority.value);
			const pairs = labels.value
				.split(",")
				.map((/** @type {string} */ one) => one.trim())
				.filter(Boolean)
				.map((/** @type {string} */ one) => one.split(/=(.*)/s).slice(0, 2));
			if (pairs.length)
				body.labels = Object.fromEntries(pairs.map((/** @type {string[]} */ [name, text]) => [name, text ?? ""]));
			const told = await post("/runs", body, once());
			go(`/runs/${told.run_id}`);
		},
	});
}

/**
 * Fields of an input; returns the function that reads them.
 * @param {HTMLElement} box @param {Record<string, any>} types @param {any} [value] @returns {() => any}
 */
export function inputForm(box, types, value) {
	const declared = Object.entries(types);
	if (!declared.length) {
		const text = area({
			class: "code",
			rows: "5",
			placeholder: "{}",
			value: value === undefined ? "" : JSON.stringify(value, null, 2),
		});
		put(box, field("Input", text, "JSON; an empty object by default."));
		return () => readJson(text.value, "The input");
	}
	const controls = declared.map(([name, type]) => {
		const before = value?.[name];
		const kind = type.type ?? "any";
		const control =
			kind === "boolean"
				? h("input", { type: "checkbox", checked: before === true })
				: kind === "integer" || kind === "number"
					? input({ type: "number", step: kind === "integer" ? "1" : "any", value: before ?? "" })
					: kind === "string"
						? input({ value: before ?? "" })
						: area({
								class: "code",
								rows: "3",
								placeholder: "JSON",
								value: before === undefined ? "" : JSON.stringify(before, null, 2),
							});
		return { name, type, kind, control };
	});
	put(
		box,
		controls.map(({ name, type, kind, control }) =>
			field(
				`${inert(name)}${type.required ? "" : " (optional)"}`,
				control,
				[type.description && inert(type.description), kind !== "string" && kind].filter(Boolean).join(" · ") ||
					undefined,
			),
		),
	);
	return () => {
		/** @type {Record<string, any>} */
		const found = {};
		for (const { name, type, kind, control } of controls) {
			const text = control.value;
			if (kind === "boolean") {
				if (control.checked || type.required) found[name] = control.checked;
				continue;
			}
			if (kind === "string") {
				if (text || type.required) found[name] = text;
				continue;
			}
			if (!text.trim()) {
				if (type.required) throw new TypeError(`${name} is needed.`);
				continue;
			}
			found[name] = kind === "integer" || kind === "number" ? Number(text) : readJson(text, name);
		}
		return found;
	};
}
