/** Questions before an action that cannot be undone: `if (await confirm({ … })) …`. Confirm.svelte shows them. */

export interface Question {
  title: string;
  text?: string;
  /** The label of the button that agrees: a verb. */
  action: string;
  danger?: boolean;
}

export const pending: { question: Question | null; answer: (yes: boolean) => void } = $state({
  question: null,
  answer: () => {},
});

export function confirm(question: Question): Promise<boolean> {
  pending.answer(false);
  return new Promise((resolve) => {
    pending.question = question;
    pending.answer = (yes) => {
      pending.question = null;
      pending.answer = () => {};
      resolve(yes);
    };
  });
}
