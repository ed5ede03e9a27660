/** Modules that tools/messages.mjs makes. */

declare module 'virtual:message-keys' {
  /** `file{group{name,name},name}`: the names of all messages, in the order of the lists. */
  const keys: string;
  export default keys;
}

declare module 'virtual:/messages/*' {
  const messages: (string | { other: string; [form: string]: string } | null)[];
  export default messages;
}
