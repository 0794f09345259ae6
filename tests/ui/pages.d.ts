/** The types that the modules of the web pages share. Only the type check reads this file; browsers never see it. */

/** What an element is made of, beside its children. */
interface Props {
	class?: string;
	on?: Record<string, (event: any) => any>;
	data?: Record<string, any>;
	key?: string;
	stamp?: unknown;
	[attribute: string]: any;
}

type Child = Node | string | number | null | undefined | false | Child[];

interface Context {
	/** From the address. */
	params: Record<string, string>;
	query: URLSearchParams;
	/** Aborted when the reader leaves the page. */
	signal: AbortSignal;
	/** Whether what is shown is kept current. */
	live: (state: "on" | "off" | "none") => void;
	title: (title: string) => void;
}

type Keys = Record<string, { say: string; act: (event: KeyboardEvent) => any }>;
interface Command {
	label: string;
	icon: string;
	keys?: string;
	state?: string;
	act: () => any;
}
interface Page {
	element: HTMLElement;
	keys?: Keys;
	commands?: Command[];
}
interface PageEntry {
	path: string;
	label: string;
	icon: string;
	keys: string;
	group: "work" | "build" | "admin";
	scope?: Answers.Scope;
	build: (context: Context) => Page;
}

/** A page that shows one body. */
interface ListOptions<T> {
	title: string;
	load: (signal: AbortSignal) => Promise<T>;
	draw: (body: T, again: () => void) => Child;
	actions?: (again: () => void) => Child;
	seconds?: number;
	keys?: Keys;
	kind?: string;
}
/** An entry of a journal, with the bytes that its hash covers. */
interface Entry {
	seq: number;
	at: string;
	hash: string;
	body?: string;
	lines: any[];
}
interface Verdict {
	kind: "whole" | "broken" | "unable";
	count: number;
	broken?: number;
	why?: string;
}

interface LayoutNode {
	id: string;
	width: number;
	height: number;
}
interface LayoutEdge {
	from: string;
	to: string;
}
interface Place {
	x: number;
	y: number;
	width: number;
	height: number;
}
interface GraphNode {
	id: string;
	label: string;
	sub: string;
	state: string;
	tip?: string;
	/** How much is done, from 0 to 1. */
	part?: number | null;
	/** Stands for elements that are folded. */
	stack?: boolean;
	undo?: { id: string; state: string; at: string | null } | null;
}
interface GraphEdge extends LayoutEdge {
	taken?: boolean;
}
/** A step in the timeline. */
type Lane = Pick<Answers.StepDetail, "name" | "call" | "state" | "phase" | "states" | "history">;
interface Column<T> {
	id: string;
	label: string;
	width: string;
	cell: (row: T) => Child;
	right?: boolean;
}

/** What a listener gets is an element of the pages: these are the parts of it that the modules use. */
interface EventTarget {
	closest?(selectors: string): any;
	matches?(selectors: string): boolean;
	blur?(): void;
}
interface Element {
	dataset: DOMStringMap;
	dateTime: string;
	hidden: any;
	click(): void;
}
