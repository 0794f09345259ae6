/** The small parts that every page uses, under one address: these modules know nothing of pages. */
export * from "./api.js";
export * from "./dom.js";
export * from "./format.js";
export * from "./icons.js";
export * from "./router.js";
export * from "./store.js";
export * from "./components/parts.js";
export * from "./components/dialog.js";
export * from "./components/toast.js";
export * from "./components/json.js";
