"""One word for one thing: the names that were given up stay given up."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import PACKAGES

ROOT = Path(__file__).parent.parent
FOLDERS = (*PACKAGES, "tests", "examples", "docs")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "backends/openai/QUIRKS.md")
SUFFIXES = (".py", ".js", ".j2", ".css", ".md", ".ipynb", ".toml", ".html")

#: old → what replaces it. No text of the project uses the old word, in code, comments, messages or documents.
ANYWHERE = """
    run_telling → run_streaming            tell_nobody → discard_response       tell_loop → call_soon_threadsafe
    take_doubtful → drain_ambiguous        suspect_since → unverified_since     note_killed → record_killed
    asked_of → scorer                      wave → round                         set_aside → quarantine
    judge → evaluate                       judged → evaluated                   judge_suite → evaluate_suite
    SuiteVerdict → SuiteResult             local_work → estimate_work           StopSignal → ShutdownRequest
    _begun → _hash_prefix                  patiently → with_retries             patience → max_wait
    TokenForcing → TeacherForcing          whole_sequence → prompt_logprobs     untruthful → inconsistent
    SeenAnswers → ResponseIdTracker        remembering → with_replay_cache      then_any_of → next_token_set
    PathScorer → SequenceScorer            takes_the_likeliest → is_greedy      TextSoFar → StopStringDecoder
    _close_ranks → _compact                _apart → _mean_abs_diff             ran_out → is_out_of_memory
    mend → hint, fix                       mends → hints, fixes                 mended → fixed
    wheres → conditions                    unmatched → n_unpaired               detectable → minimum_detectable_effect
    in_words → describe                    yes_no → is_binary                   _good_place → _reference_value
    ledger → data_quality                  LedgerEntry → DataQuality            telling → distinguishing_labels
    write_whole → atomic_write             ModelChanged → ModelChangedError     NothingDrawn → NothingDrawnError
    ImpossibleMass → ImpossibleMassError   MOODY → REFUSALS_BEFORE_PAUSE        IN_VAIN → MAX_AMBIGUOUS_PASSES
    forgotten → effect_attenuation         stretches → segments                 hand_over → release
    named_audit → adhoc_audit              SecondAsking → RepeatedQuestions     paces → timings
    number_asked_again → number_to_repeat  useful_sample → sample_requirement   looks_of_items → assign_looks
    measure_paces → measure_timings        own_spread → repeat_noise            request_to_json → codecs
    seconds_of → estimate_seconds          is_gate_decided → gate_answer        question_of → stopping_question
    is_comparison_decided → comparison_answer                                   under_todays_names → with_current_names
    sent_along → request_extras            SentAlong → RequestExtras            NAME_NONE → NO_KEY_HINT
    neighbour_proof → batch_invariant      WORTH_WAITING → MIN_SAVED_TOKENS     DEFAULT_ROOM → reasoning_tokens
    unfinished_thought → UnfinishedThoughtError                                 request_from_json → codecs
    is_believed → is_trusted               NOT_BELIEVED → NOT_TRUSTED           refuse_unbelieved → refuse_untrusted
    MARGINS_OF_UNSEEN → largest_change     harm_with_unseen → change_with_unseen
    read_gender_answer → read_selection    answered_items → ParsedResponses     html_report → report_page
    MIXED_UP_PASSES → MAX_AMBIGUOUS_PASSES READ_TOKENS_A_WRITTEN_ONE → RequestTiming
"""
#: The same for words of plain English: no class, function, attribute or parameter has the old name.
AS_NAMES = """
    Tell → OnResponse            finish → verify_identity     Asked → DescribedBackend     Prepared → ResolvedAudit
    Answered → ItemResponse      Reading → ParsedResponses    evidence → provenance        Breaker → CircuitBreaker
    known → answered             explain → inspect            fits → matches_request       learn → update
    note → record                Findings → ServerCapabilities                             Listing → TopLogprobs
    Notebook → ProbeSession      spread → repeat_noise        numbered → with_sample_index
    covers → prefix_tokenizations                             Bounded → IdentifiedInterval detail → is_subgroup
    turned → swapped             counted → is_count           pace → RequestTiming         Way → ConnectionOptions
    lay → write_prompt           wished → known               obeyed → outcome             harms → harm
    portion → batch              suspects → unverified        Rounds → AnswerCollector
    Dominated → GroupDesign      portions → split_into_batches note_draw → record_draw
"""
#: Modules and folders that have another name now.
PLACES = """
    audit/named → audit/api/adhoc                             audit/drift → audit/analysis/comparing/engine_noise
    audit/rounds → audit/run/answer_collector                 audit/answer_collector → audit/run/answer_collector
    audit/decided → audit/run/stopping_rule                   audit/stopping_rule → audit/run/stopping_rule
    audit/paces → audit/prepare/forecast/request_timing
    audit/request_timing → audit/prepare/forecast/request_timing
    audit/estimate → audit/prepare/forecast/estimate          audit/collect/work → audit/prepare/forecast/estimate
    audit/planning → audit/prepare/forecast/planning          audit/collect/looks → audit/collect/interim_looks
    audit/collect/second_asking → audit/collect/repeated_questions
    audit/collect/useful_sample → audit/collect/sample_requirement
    backends/openai/sent_along → backends/openai/protocol/request_extras
    backends/openai/whole_sequence → backends/openai/scoring/prompt_logprobs
    backends/local/options → backends/local/backend           suites/own → suites/custom
    suites/exclusive → suites/common/probabilities            audit/resolve → audit/prepare/resolve
    audit/rehearsal → audit/prepare/rehearsal                 audit/forecast → audit/prepare/forecast
    audit/adhoc → audit/api/adhoc                             audit/stored_result → audit/api/stored_result
    audit/signatures → audit/results/signatures
    audit/analysis/table → audit/analysis/rows/table          audit/analysis/design → audit/analysis/rows/design
    audit/analysis/missing → audit/analysis/rows/missing      audit/analysis/examples → audit/analysis/rows/examples
    audit/analysis/responses → audit/analysis/rows/responses  backends/named → backends/catalogue/named
    backends/plugins → backends/catalogue/plugins             backends/fake → backends/stand_ins/fake
    backends/recorded → backends/stand_ins/recorded           backends/words → backends/reading/words
    backends/reasoning → backends/reading/reasoning           backends/toml_lines → backends/options/toml_lines
    backends/openai/api → backends/openai/protocol/api
    backends/openai/parameters → backends/openai/protocol/parameters
"""


def pairs(table: str) -> dict[str, str]:
    """Old word → the one that replaces it."""
    return dict(re.findall(r"(\S+) → (\S+(?:, \S+)*)", table))


#: (file, word) → why it stays there.
ALLOWED = {
    ("tests/test_vocabulary.py", ""): "the list itself",
    ("audit/results/figures.py", "unmatched"): "a key of report.json, which is a public format",
    ("audit/results/figures.py", "detectable"): "a key of report.json",
    ("audit/results/figures.py", "ledger"): "a key of report.json",
    ("CHANGELOG.md", "forgotten"): "what users find under a new name",
    ("suites/renamed_measures.py", "forgotten"): "a measure's name in results that are stored already",
    ("suites/mgbr", "judged"): "a level of MGBR's factor `kind`, in results that are stored already",
    ("tests/suites/mgbr", "judged"): "the same level",
    ("backends/errors.py", "untruthful"): "a kind of error in stores that are written already",
    ("audit/cli", "explain"): "a verb of the command line",
    ("audit/store/sqlite/schema.py", "detail"): "a column of the store",
    ("audit/collect/jobs.py", "note"): "a key of the progress lines that --json prints",
    ("audit/collect/job_run.py", "note"): "a key of the progress lines that --json prints",
    ("suites/presentation.py", "note"): "a key of report.json",
    ("backends/local/generation.py", "finish"): "a text ends; no backend does",
    ("tests/audit/test_results.py", "forgotten"): "results that are stored already",
    ("tests/audit/report/made_up.py", "detectable"): "a key of report.json",
}


@functools.cache
def sources() -> tuple[Path, ...]:
    found = [p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*")) if p.suffix in SUFFIXES]
    return (*found, *(ROOT / name for name in DOCUMENTS if (ROOT / name).exists()))


@functools.cache
def text_of(path: Path) -> tuple[str, str]:
    """As it is, and without upper case: read once for all words."""
    text = path.read_text("utf-8")
    return text, text.casefold()


def is_allowed(path: Path, word: str) -> bool:
    name = path.relative_to(ROOT).as_posix()
    return any(name.startswith(file) and of in ("", word) for file, of in ALLOWED)


def names(path: Path) -> Iterator[tuple[str, int]]:
    """Names that a file of the product gives: classes, functions, parameters, fields and attributes."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node.lineno
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno


@pytest.mark.parametrize("word", pairs(ANYWHERE))
def test_the_old_word_is_gone(word):
    pattern = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE)
    places = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources()
        if word.casefold() in text_of(path)[1] and not is_allowed(path, word)
        for number, line in enumerate(text_of(path)[0].splitlines(), 1)
        if pattern.search(line)
    ]
    assert places == [], f"write {pairs(ANYWHERE)[word]}"


@pytest.mark.parametrize(("old", "new"), pairs(PLACES).items())
def test_the_old_place_is_gone(old, new):
    assert not (ROOT / old).with_suffix(".py").exists()
    assert not [*(ROOT / old).glob("*.py"), *(ROOT / "tests" / old).glob("*.py")]
    assert any(path.exists() for path in (ROOT / new, (ROOT / new).with_suffix(".py")))


def test_the_old_names_are_gone():
    retired = pairs(AS_NAMES)
    places = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in sources()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PACKAGES
        for name, line in names(path)
        if name.lstrip("_") in retired and not is_allowed(path, name.lstrip("_"))
    ]
    assert places == []


def test_the_names_of_tests_are_short():
    """Unit, condition, outcome: in 60 characters."""
    names = [
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(names) > 1000
    assert [name for name in names if name.startswith("test_") and len(name) > 60] == []
