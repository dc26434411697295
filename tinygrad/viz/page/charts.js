"use strict";
export class TimelineView { constructor(m){m.replaceChildren();} async show(){} }
export class KernelView { constructor(m){m.replaceChildren();} async show(){} }
export class MemoryView { constructor(m){m.replaceChildren();} async show(){} }
export class RuleView { constructor(m){m.replaceChildren();} async show(){} }
export class CompareView { constructor(m){m.replaceChildren();} async show(){} }
