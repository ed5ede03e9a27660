/** All catalogues of a language, by file name. */
const files = import.meta.glob<Record<string, unknown>>('./en/*.json', { eager: true, import: 'default' });

export default Object.fromEntries(Object.entries(files).map(([path, messages]) => [path.slice('./en/'.length, -'.json'.length), messages]));
