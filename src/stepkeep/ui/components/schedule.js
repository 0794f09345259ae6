/**
 * Schedules in words: "every day at 02:30", "every 15 minutes". What has no simple words is shown as it was written.
 */
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
/** @type {Record<string, string>} */
const NAMES = { "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0" };
/** @param {string} number */
const two = (number) => String(number).padStart(2, "0");

/** @param {string} cron five fields, or a name such as @daily */
export function cronText(cron) {
	const fields = (NAMES[cron] ?? cron).trim().split(/\s+/),
		[minute, hour, day, month, week] = fields;
	/** @param {string} text */
	const isNumber = (text) => /^\d+$/.test(text);
	if (fields.length !== 5 || month !== "*") return cron;
	const every = /^\*\/(\d+)$/.exec(minute);
	if (every && hour === "*" && day === "*" && week === "*") return `every ${every[1]} minutes`;
	if (minute === "*" && hour === "*" && day === "*" && week === "*") return "every minute";
	if (!isNumber(minute)) return cron;
	if (hour === "*" && day === "*" && week === "*")
		return minute === "0" ? "every hour" : `every hour, at minute ${minute}`;
	if (!isNumber(hour)) return cron;
	const at = `at ${two(hour)}:${two(minute)}`;
	if (day === "*" && week === "*") return `every day ${at}`;
	if (day === "*" && week === "1-5") return `Monday to Friday ${at}`;
	if (day === "*" && isNumber(week) && DAYS[Number(week)]) return `every ${DAYS[Number(week)]} ${at}`;
	if (week === "*" && isNumber(day)) return `on day ${day} of each month ${at}`;
	return cron;
}

/** What makes a trigger fire. @param {any} trigger */
export function causeText({ schedule, event, ended, condition }) {
	if (schedule?.cron) return cronText(schedule.cron);
	if (schedule) return `every ${schedule.every}`;
	const what = ended
		? `when a run of ${ended.workflow} has ended as ${ended.states.join(" or ")}`
		: `on the event ${event}`;
	return condition ? `${what}, if ${condition}` : what;
}
