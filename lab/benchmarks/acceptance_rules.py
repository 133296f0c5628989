"""How often is a drafted token accepted, by the rule that accepts it?

    python -m lab.benchmarks.acceptance_rules [--pair qwen2.5-coder-1.5b] [--positions 120]

At every position of a text that the target sampled, the draft model is asked for one token:
    shared noise   the draft chooses under the target's own noise (what localspec does)
    greedy draft   the draft's likeliest token, compared with the target's choice
    independent    the draft samples under noise of its own
    ceiling        what rejection sampling would accept: the overlap of both distributions
"""

import argparse

import numpy as np

from lab.benchmarks.workbench import machine, opened, prompts
from localspec.chat.conversation import Conversation
from localspec.decoding.choose import Chooser, choose
from localspec.decoding.noise import Noise
from localspec.decoding.sampling import Candidates
from localspec.options import LaunchOptions, LoadOptions, SamplingParams


def overlap(target: Candidates, draft: Candidates) -> float:
    """Return the sum over tokens of the smaller of both probabilities."""
    ids, at_target, at_draft = np.intersect1d(target.ids, draft.ids, return_indices=True)
    if ids.size == 0:
        return 0.0
    return float(
        np.minimum(target.probabilities()[at_target], draft.probabilities()[at_draft]).sum()
    )


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", default="qwen2.5-coder-1.5b")
    parser.add_argument("--positions", type=int, default=60, help="of each prompt")
    parser.add_argument("--prompts", type=int, default=4, help="of each kind")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--kinds", help="comma-separated; all by default")
    args = parser.parse_args()
    request = LaunchOptions(args.pair, draft="model", load=LoadOptions(threads=args.threads))
    assistant = opened(request).assistant
    models, small = assistant.models, assistant.models.draft_model
    if small is None:
        raise SystemExit(f"{args.pair} has no draft model")
    sampling = SamplingParams(temperature=args.temperature, min_p=0.0)
    kinds: dict[str, list[list[float]]] = {}
    taken: dict[str, int] = {}
    for index, prompt in enumerate(prompts()):
        wanted = not args.kinds or prompt.workload in args.kinds.split(",")
        if not wanted or taken.get(prompt.workload, 0) >= args.prompts:
            continue
        taken[prompt.workload] = taken.get(prompt.workload, 0) + 1
        conversation = Conversation()
        conversation.append_user(prompt.prompt)
        noise, other = Noise(index), Noise(index + 10_000)
        chooser = Chooser(sampling, noise)
        tokens = assistant.prompt_tokens(conversation)
        for _ in range(args.positions):
            target = chooser.candidates(models.target.logits(tokens, 1)[0], tokens)
            row = small.logits(tokens, 1)[0]
            draft = chooser.candidates(row, tokens)
            token = choose(target, noise, len(tokens))
            hits = [
                token == choose(draft, noise, len(tokens)),
                token == int(row.argmax()),
                token == choose(draft, other, len(tokens)),
                overlap(target, draft),
            ]
            kinds.setdefault(prompt.workload, []).append([float(hit) for hit in hits])
            tokens.append(token)
            if token in models.eog:
                break
    print(f"{machine()}; {args.pair}, temperature {args.temperature}, top-k 40, top-p 0.95")
    print(f"{'':12}{'shared noise':>14}{'greedy draft':>14}{'independent':>14}{'ceiling':>14}   n")
    for kind, rows in kinds.items():
        means = np.mean(rows, axis=0)
        print(f"{kind:12}" + "".join(f"{mean:14.3f}" for mean in means) + f"{len(rows):4}")


if __name__ == "__main__":
    main()
