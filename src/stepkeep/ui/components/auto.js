/**
 * A table of objects whose fields are not known beforehand: columns are their simple fields.
 */
import { badge, h, iconOf, line, moment, said, table, words } from "../kit.js";

const MOST_COLUMNS = 8,
	MOST_ROWS = 500;
const WHEN = /^\d{4}-\d\d-\d\dT\d\d:\d\d/;

/** @param {any[]} rows @param {string} [name] */
export function autoTable(rows, name = "Rows") {
	const objects = rows.filter((one) => one && typeof one === "object");
	const columns = [...new Set(objects.slice(0, 50).flatMap((one) => Object.keys(one)))]
		.filter((key) =>
			objects.some(
				(one) => one[key] !== null && one[key] !== undefined && typeof one[key] !== "object" && one[key] !== "",
			),
		)
		.slice(0, MOST_COLUMNS);
	return table(
		name,
		columns.map(words),
		objects.slice(0, MOST_ROWS).map((one) => columns.map((key) => cell(key, one[key]))),
	);
}

/** @param {string} key @param {unknown} value */
function cell(key, value) {
	if (value === null || value === undefined || value === "") return "–";
	if (typeof value === "object") return h("code", line(JSON.stringify(value), 80));
	if (typeof value === "string" && WHEN.test(value)) return moment(value);
	if (/^(state|status)$/.test(key) && iconOf(String(value).toLowerCase()) !== "dot")
		return badge(String(value).toLowerCase(), line(value, 40));
	return said(value, 120);
}
