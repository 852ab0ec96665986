"""What `tests.mutants` breaks: one place of one script each, by name."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """`old` is in `file` exactly once. `quick`: so easy to notice that the test suite itself checks it."""

    name: str
    file: str
    old: str
    new: str
    quick: bool = False


def _cut(name: str, file: str, text: str, *, quick: bool = False) -> Mutation:
    return Mutation(name, file, text, "", quick)


MUTATIONS: tuple[Mutation, ...] = (
    # Fencing and leases
    Mutation("no fence at commit", "commit.lua", "if u and u.token == token then", "if u then", quick=True),
    Mutation("no fence when units come back", "shared/suspects.lua", "if u.token ~= token then return end", ""),
    _cut("an expired claim keeps its key", "shared/leases.lua", "  call('DEL', claim_key(token))\n", quick=True),
    _cut("an expired lease stays", "shared/leases.lua", "  call('ZREM', LEASES, token)\n  settled()", quick=True),
    Mutation("leases never expire", "shared/leases.lua", "'LIMIT', 0, limit)", "'LIMIT', 0, 0)"),
    _cut(
        "a finished claim keeps its lease",
        "commit.lua",
        "if call('EXISTS', claim_key(token)) == 0 then call('ZREM', LEASES, token) end\n",
    ),
    Mutation(
        "a repeated claim takes new units",
        "shared/claiming.lua",
        "if call('EXISTS', claim_key(token)) == 1 then",
        "if false then",
    ),
    Mutation("renew revives what is lost", "renew.lua", "if not call('ZSCORE', LEASES, arg(1)) then return 0 end", ""),
    # Attempts and suspects
    Mutation(
        "attempts are not counted",
        "shared/claiming.lua",
        "u.attempts, u.token = u.attempts + 1, token",
        "u.token = token",
        quick=True,
    ),
    Mutation("convicted after two deaths", "shared/suspects.lua", "local DEATHS_ALONE = 3", "local DEATHS_ALONE = 2"),
    Mutation("convicted after four deaths", "shared/suspects.lua", "local DEATHS_ALONE = 3", "local DEATHS_ALONE = 4"),
    Mutation("one stream takes all", "shared/claiming.lua", "open_costs[name] * rate / total_rate", "open_costs[name]"),
    Mutation("claims of bulk work do not shrink", "shared/claiming.lua", "name == 'bulk' and part / 2 or part", "part"),
    # Large units
    Mutation(
        "a list takes more than its part",
        "shared/claiming.lua",
        "open_costs.large = open_costs.online",
        "open_costs.large = 1e9",
    ),
    Mutation(
        "lists have no budget of their own", "shared/claiming.lua", "if of_large then room.online = room.large end", ""
    ),
    Mutation("small units beside large ones", "shared/claiming.lua", "large(u, line) ~= of_large or spent", "spent"),
    Mutation("a long text is a list", "shared/claiming.lua", "u.items > 1 and u.cost", "u.cost"),
    Mutation("bulk work has lists", "shared/claiming.lua", "return line == 'online' and u.items", "return u.items"),
    Mutation("a look takes lists", "shared/claiming.lua", "if not small_only then", "if true then"),
    Mutation("a look sees one list", "shared/claiming.lua", "MAX_PASSED_OVER = 64", "MAX_PASSED_OVER = 1"),
    Mutation("a look sees all lists", "shared/claiming.lua", "MAX_PASSED_OVER = 64", "MAX_PASSED_OVER = 99"),
    Mutation(
        "time follows a look",
        "shared/claiming.lua",
        "tonumber(heads[i + 1]), tonumber(heads[2])",
        "tonumber(heads[i + 1]), tonumber(heads[i + 1])",
    ),
    Mutation(
        "taken in advance is had",
        "shared/claiming.lua",
        "if not of_large or #refs == 1 then clock",
        "if true then clock",
    ),
    Mutation("a look reads what it passed", "shared/claiming.lua", "passed[id] = true", ""),
    Mutation(
        "a look takes another owner's turn",
        "shared/claiming.lua",
        "if time then break end ",
        "",
    ),
    Mutation(
        "who is alone takes a stream's part", "shared/claiming.lua", "if alone and rate > 0 then", "if false then"
    ),
    Mutation(
        "who is alone takes all",
        "shared/claiming.lua",
        "if rate > 0 and rate <",
        "if not alone and rate > 0 and rate <",
    ),
    Mutation("suspects in the lanes", "shared/suspects.lua", "if u.attempts > 0 then  ", "if false then  ", quick=True),
    Mutation("suspects in company", "shared/claiming.lua", "suspect and 1 or math.min", "math.min"),
    Mutation("nobody hears of suspects", "shared/claiming.lua", "out[5] = suspects > 0 and 1 or 0", "out[5] = 0"),
    Mutation("suspects make no work", "shared/turns.lua", " + call('ZCARD', lane_key('suspects'))", ""),
    Mutation(
        "one suspect hides the others",
        "shared/claiming.lua",
        "then more = call('EXISTS', came_back) == 1 end",
        "then end",
    ),
    Mutation(
        "a lane pays for suspects",
        "shared/claiming.lua",
        "if not suspect then change('credit'",
        "if true then change('credit'",
    ),
    Mutation(
        "who asks for a suspect lingers",
        "shared/claiming.lua",
        "not online_only and not suspect then\n    local wait",
        "true then\n    local wait",
    ),
    Mutation(
        "suspects of an ended task stay",
        "shared/ending.lua",
        "if call('EXISTS', suspects_key(id)) == 1 then",
        "if false then",
    ),
    Mutation("bystanders of a suspect die", "shared/leases.lua", "  if alone then\n", "  if false then\n"),
    Mutation("every claim of the dead was a bystander", "shared/leases.lua", "  if alone then\n", "  if true then\n"),
    _cut(
        "what stood still counts as a death",
        "shared/leases.lua",
        "  if not call('ZSCORE', LEASES, token) then return end  -- it stood still itself\n",
    ),
    # Redis or its clock stands still
    Mutation("a standstill ends leases", "shared/leases.lua", "  if gap > STILL_MS then\n", "  if false then\n"),
    Mutation("rare looks keep leases for ever", "shared/leases.lua", "+ gap - STILL_MS), leases", "+ gap), leases"),
    _cut(
        "the first lease is not noted",
        "shared/claiming.lua",
        "  if not leases or not queue[4] then change('last', NOW) end\n",
    ),
    _cut("what was noted stays", "shared/leases.lua", "    call('HDEL', S, 'last')\n"),
    _cut("a renewal counts a standstill", "renew.lua", "look_at_clock()\n"),
    Mutation("no beat notes the time", "beat.lua", "look_at_clock(true)", "look_at_clock()"),
    Mutation("no watch notes the time", "watch.lua", "look_at_clock(true)", "look_at_clock()"),
    Mutation(
        "release does not refund", "shared/suspects.lua", "u.attempts = u.attempts - 1", "u.attempts = u.attempts"
    ),
    Mutation("parts lose cost", "shared/suspects.lua", "i == u.items - 1 and left or math.floor", "math.floor"),
    Mutation("parts read the wrong text", "shared/suspects.lua", "offset = u.offset + i", "offset = u.offset"),
    # Ends
    _cut("a cancelled task keeps its place", "shared/ending.lua", "  leave_lane(id, f[2], f[3])\n"),
    _cut(
        "an ended task keeps its deadline",
        "shared/ending.lua",
        "  if t.deadline then due_no_more[#due_no_more + 1] = id end\n",
    ),
    _cut(
        "an ended task keeps its units",
        "shared/ending.lua",
        "  if #garbage > 0 then call('UNLINK', unpack(garbage)) end",
    ),
    _cut("results live for ever", "shared/ending.lua", "  call('PEXPIRE', result_key(id), t.ttl)\n"),
    _cut("metadata lives for ever", "shared/ending.lua", "  if t.meta then call('PEXPIRE', meta_key(id), t.ttl) end\n"),
    Mutation(
        "a claim ignores deadlines", "shared/claiming.lua", "if f[2] and tonumber(f[2]) <= NOW then", "if false then"
    ),
    Mutation("watch ignores deadlines", "watch.lua", "if end_task(id, 'expired') then", "if false then"),
    Mutation(
        "a task of errors has completed", "shared/ending.lua", "t.ok > 0 and 'completed' or 'failed'", "'completed'"
    ),
    _cut("the backlog keeps an ended task's cost", "shared/ending.lua", "  owe(t.lane, t.owner, 0 - t.cost)\n"),
    Mutation(
        "the backlog keeps an ended task's bytes", "shared/ending.lua", "t.owner, -1, 0 - t.bytes)", "t.owner, -1, 0)"
    ),
    Mutation(
        "an owner's backlog keeps what is done",
        "shared/accounts.lua",
        "  add(S, 'cost_' .. lane .. ':' .. owner, cost)\n",
        "",
    ),
    Mutation("owners count for ever", "shared/accounts.lua", "(was > 0) ~= (is > 0)", "was == 0", quick=True),
    Mutation("an owner keeps a 0", "shared/accounts.lua", "if sum == 0 and passing[name] then", "if false then"),
    _cut("an owner's account keeps what was open", "shared/ending.lua", "  add(HELD, t.owner, 0 - t.held)\n"),
    _cut("results are in no account", "shared/ending.lua", "  keep_results(t.owner, kept, t.ttl)\n", quick=True),
    Mutation(
        "results of a cancelled task count whole",
        "shared/ending.lua",
        "t.held - t.bytes - t.reserve",
        "t.held - t.bytes",
    ),
    Mutation("results count after their end", "watch.lua", "'LIMIT', 0, MAX_DROPPED)", "'LIMIT', 0, 0)"),
    Mutation("results leave the account too early", "shared/accounts.lua", "int(math.ceil(", "int(math.floor("),
    Mutation(
        "a forgotten result stays in the account",
        "shared/forgetting.lua",
        "if tonumber(held[1]) > 0 then",
        "if false then",
    ),
    Mutation(
        "a counted-out result is counted out twice",
        "shared/accounts.lua",
        "math.min(bytes or kept, kept)",
        "bytes or kept",
    ),
    # Aliases
    Mutation(
        "an alias dies with the task it had",
        "shared/base.lua",
        "if entry and string.match(entry, '^%S+') == id then",
        "if entry then",
    ),
    Mutation("the alias of a key may vanish", "shared/enqueue.lua", "if ends and not t.listed then", "if ends then"),
    Mutation("a caller's alias stays", "shared/enqueue.lua", "if ends and not t.listed then", "if false then"),
    Mutation(
        "joining does not prolong the alias",
        "submit.lua",
        "if call('PTTL', alias_key(t.owner, t.alias)) >= 0",
        "if false",
    ),
    Mutation(
        "joining does not prolong", "submit.lua", "and ends > tonumber(call('HGET'", "and 0 > tonumber(call('HGET'"
    ),
    Mutation("joining shortens", "submit.lua", "and ends > tonumber(call('HGET'", "and 9e15 > tonumber(call('HGET'"),
    Mutation("joins what was cancelled", "submit.lua", "of == t.digest and OPEN[f[1]] then", "of == t.digest then"),
    Mutation("another body joins", "submit.lua", "if of ~= t.digest then return {'conflict'} end", ""),
    # Tasks that come together
    Mutation(
        "who joins together shortens",
        "submit.lua",
        "tonumber(call('HGET', task_key(other), 'deadline'))",
        "tonumber(f[2])",
    ),
    Mutation(
        "joining lets a full Redis store",
        "submit.lua",
        "if rest then later[#replies] = rest end",
        "if rest then allowed_when_full(); replies[#replies] = rest() end",
    ),
    _cut(
        "what comes together is judged alone",
        "submit.lua",
        "  one_more_beside(queue, t.cost, t.bytes, t.bytes + t.reserve)\n",
    ),
    Mutation("who is joined in this call has no caller", "submit.lua", "wanted[other] = true", "local _ = true"),
    Mutation("what nobody waits for is taken off twice", "shared/admission.lua", "  q.changed = true\n", ""),
    Mutation("owners who come together are one", "submit.lua", " or beside.owner ~= t.owner then", " then"),
    Mutation("lanes that come together are one", "submit.lua", " or beside.lane ~= t.lane", ""),
    Mutation("one stream is woken for all", "submit.lua", "  if not wake_lingerer() then\n", "  if true then\n"),
    Mutation("the last of those together fills memory", "submit.lua", "filled = filled + t.bytes", "filled = t.bytes"),
    Mutation("those together reserve nothing", "shared/accounts.lua", " - promised - reserved", " - promised"),
    Mutation(
        "held bytes of those together are forgotten", "shared/admission.lua", "q.held and q.held + held", "q.held"
    ),
    Mutation(
        "want only prolongs",
        "want.lua",
        "shorten and math.min(deadline, at) or math.max(deadline, at)",
        "math.max(deadline, at)",
    ),
    # Results that travel with the news
    Mutation("what has waiters in two processes is told to one", "submit.lua", "f[4] ~= t.answer then", "false then"),
    Mutation("an answer that nobody got is not announced", "shared/answers.lua", ")) > 0 then", ")) >= 0 then"),
    Mutation("a part is told as a result", "shared/answers.lua", "if t.ended < t.total or", "if"),
    Mutation("large results are sent", "shared/answers.lua", "bytes > MAX_ANSWER or", ""),
    Mutation("a message has no limit", "shared/answers.lua", " or box.bytes + bytes > MAX_ANSWERS", ""),
    # Successors
    Mutation(
        "a successor comes without its change", "ingestion_move.lua", "if moved then\n", "if true then\n", quick=True
    ),
    Mutation("no successor is enqueued", "ingestion_move.lua", "ipairs(enqueue(FIRST + 3))", "ipairs({})", quick=True),
    Mutation("a successor in its predecessor's queue", "shared/enqueue.lua", "    use_queue(t.queue)\n", ""),
    Mutation(
        "a successor replaces what is there",
        "shared/enqueue.lua",
        "task_key(t.id)) == 0 then",
        "task_key(t.id)) < 2 then",
    ),
    Mutation("a successor wakes nobody", "shared/enqueue.lua", "if ready() > 0 and wake() == 1 then", "if false then"),
    Mutation("a successor needs no room", "shared/enqueue.lua", "= room_for(t.total, t.vector_bytes), ''", "= 0, ''"),
    Mutation("no step hears of an end", "shared/ending.lua", "if t.wakes then wake_steps() end", ""),
    Mutation("every end wakes the steps", "shared/ending.lua", "if t.wakes then wake_steps() end", "wake_steps()"),
    _cut("a new ingestion wakes no step", "ingestion_create.lua", "wake_steps()\n"),
    _cut("a new batch wakes no step", "batch_create.lua", "wake_steps()\n"),
    _cut("a batch's state wakes no step", "batch_move.lua", "if f[1] ~= to then wake_steps() end\n"),
    Mutation(
        "an ingestion's state wakes no step", "shared/ingestions.lua", "  wake_steps()\n  return true", "  return true"
    ),
    # Wake-up
    Mutation(
        "a claim that leaves work wakes nobody",
        "shared/claiming.lua",
        "  out[1], out[3] = wake(), 1\n  elseif",
        "  out[3] = 1\n  elseif",
    ),
    Mutation(
        "a heard bell stays", "shared/claiming.lua", "if rang then call('HDEL'", "if false then call('HDEL'", quick=True
    ),
    Mutation(
        "every claim clears the bell", "shared/claiming.lua", "if rang then call('HDEL'", "if true then call('HDEL'"
    ),
    Mutation(
        "a registration is believed",
        "shared/wakeup.lua",
        "'work') > 0 then return true end",
        "'work') >= 0 then return true end",
    ),
    Mutation("a charge is taken twice", "charge.lua", "cost - tonumber(t[4] or 0)", "cost"),
    Mutation("an ended task is charged", "charge.lua", "not t[1] or not OPEN[t[1]] or ", ""),
    Mutation("a charge does not delay who waits", "charge.lua", "call('ZINCRBY', lane_key(t[2]), int(more), t[3])", ""),
    _cut("a charge is not remembered", "charge.lua", "call('HINCRBY', S, 'pass_' .. t[2] .. ':' .. t[3], int(more))\n"),
    Mutation("release wakes nobody", "release.lua", "return ready() > 0 and wake() or 0", "return 0"),
    Mutation("abandon wakes nobody", "abandon.lua", "return ready() > 0 and wake() or 0", "return 0"),
    Mutation("submit wakes nobody", "submit.lua", "in ipairs(to_wake) do", "in ipairs({}) do", quick=True),
    # Handing over
    Mutation("a crowd is handed over one by one", "submit.lua", "queue.cost == 0 and t", "t"),
    Mutation("large texts are handed over", "submit.lua", "and lone.bytes <= MAX_HANDED", ""),
    _cut(
        "nobody holds what nobody heard",
        "shared/claiming.lua",
        "  drop_claim(request[TOKEN], true)      -- nobody is there\n",
    ),
    _cut("who leaves keeps what it was handed", "leave.lua", "  drop_claim(arg(3), true)\n"),
    Mutation("who has gone is handed more", "release.lua", "then call('ZREM', LINGER, stream) end", "then end"),
    Mutation("a late release ends a wait", "release.lua", "request and request[TOKEN] == arg(1)", "request"),
    Mutation("a claim of another version is repeated", "shared/wakeup.lua", "asked.as == ASKED_AS and", ""),
    Mutation(
        "a stream that cannot take it sleeps", "shared/claiming.lua", "  if not reply[6] then\n", "  if false then\n"
    ),
    _cut(
        "what has ended is claimed for ever",
        "shared/claiming.lua",
        "    if #out == 5 then drop_claim(token, true) end   -- all that it had has ended: nobody will end the claim\n",
    ),
    Mutation("who has waited enough is handed more", "shared/claiming.lua", "or tonumber(last[2]) <= NOW then", "then"),
    Mutation("watch rings for nobody", "watch.lua", "  due = bell_due()\n", ""),
    Mutation(
        "lingers beside ready work",
        "shared/claiming.lua",
        "> 0 then\n    out[1], out[3] = wake(), 1\n  elseif",
        "< 0 then\n  elseif",
    ),
    Mutation("a bell is believed for ever", "shared/wakeup.lua", "NOW - at < BELL_MS * 2 ^", "NOW - at < 1e12 * 2 ^"),
    Mutation(
        "a bell does not age more slowly",
        "shared/wakeup.lua",
        "BELL_MS * 2 ^ math.min(math.max(rings - 1, 0), 5)",
        "BELL_MS",
    ),
    Mutation("no model is ever forgotten", "watch.lua", "elseif NOW - since >= FORGOTTEN_AFTER_MS", "elseif false"),
    Mutation("a model without workers is forgotten at once", "watch.lua", "7 * 86400000", "0"),
    Mutation("a model with work is forgotten", "watch.lua", "tonumber(s[2] or 0) > 0 then", "0 > 0 then"),
    Mutation("a served model is forgotten", "watch.lua", "if workers == 0 and call('HEXISTS'", "if call('HEXISTS'"),
    Mutation("a beat is no sign of use", "beat.lua", "call('HDEL', S, 'idle')\n", ""),
    Mutation("what is forgotten leaves its state", "watch.lua", "    call('UNLINK', S)\n", ""),
    Mutation("unknown models get a state", "watch.lua", " and call('HEXISTS', R .. ':models', QUEUE) == 1", ""),
    Mutation("a clock that went back keeps a model", "watch.lua", "not since or since > NOW", "not since"),
    # Fairness and lanes
    Mutation("bulk gets a fifteenth", "shared/claiming.lua", "local BULK_SHARE = 8", "local BULK_SHARE = 15"),
    Mutation(
        "bulk owes nothing",
        "shared/claiming.lua",
        "    credit = credit - (BULK_SHARE - 1) * spent\n",
        "    credit = 0\n",
    ),
    Mutation(
        "owners pay nothing",
        "shared/claiming.lua",
        "owner.pass, owner.time, owner.served = owner.pass + cost,",
        "owner.pass, owner.time, owner.served = owner.pass,",
    ),
    Mutation("owners pay per unit", "shared/claiming.lua", "= owner.pass + cost,", "= owner.pass + 1,"),
    Mutation("a task keeps its turn", "shared/claiming.lua", "int(tag + u.cost), id) end", "int(tag), id) end"),
    Mutation(
        "who comes late goes first",
        "shared/turns.lua",
        "int(math.max(tonumber(v[2] or 0), tonumber(v[3] or 0)))",
        "int(tonumber(v[2] or 0))",
    ),
    Mutation(
        "new tasks go first", "shared/turns.lua", "'NX', int(tonumber(v[1] or 0) + cost), id)", "'NX', int(cost), id)"
    ),
    Mutation(
        "a look at the online lane takes bulk",
        "shared/claiming.lua",
        "if #refs == 0 and not online_only and not suspect then",
        "if #refs == 0 and not suspect then",
    ),
    Mutation(
        "what did not fit loses its turn",
        "shared/claiming.lua",
        "call('ZADD', owner_key(line, owner), tag, id)   --",
        "call('ZADD', owner_key(line, owner), tag + 1000, id)   --",
    ),
    # Admission and a full Redis
    Mutation(
        "admission ignores what comes", "shared/admission.lua", "before + cost - limit_cost", "before - limit_cost"
    ),
    Mutation(
        "admission judges by all of an owner's work",
        "shared/admission.lua",
        "math.min(q.mine, q.tasks * cost)",
        "q.mine",
    ),
    Mutation("admission judges by all others' work", "shared/admission.lua", "q.others * (mine + cost))", "q.all)"),
    Mutation(
        "any sum of falling sizes", "shared/admission.lua", "if above <= 0 and far <= 0 then", "if above <= 0 then"
    ),
    Mutation(
        "a crowded lane takes nothing large",
        "shared/admission.lua",
        "math.min(over, (q.others",
        "math.max(over, (q.others",
    ),
    Mutation(
        "admission ignores others", "shared/admission.lua", "math.min(q.all - q.mine, q.others * (mine + cost))", "0"
    ),
    Mutation(
        "what nobody waits for counts", "shared/admission.lua", "do without(q, other) end", "do local _ = other end"
    ),
    Mutation(
        "what is listed does not count near its end",
        "shared/admission.lua",
        "if f[1] ~= q.lane or f[4] then",
        "if f[1] ~= q.lane then",
    ),
    Mutation("the other lane's end counts", "shared/admission.lua", "if f[1] ~= q.lane or f[4] then", "if f[4] then"),
    Mutation("a time beyond the end of abandoned work", "shared/admission.lua", "    without(q, later[i])\n", ""),
    Mutation(
        "a time as if all were served alike",
        "shared/admission.lua",
        "above * math.max(1, q.mine / math.max(mine, 1))",
        "above",
    ),
    Mutation(
        "a time to serve more than there is",
        "shared/admission.lua",
        "return math.min(above, q.mine +",
        "return math.max(above, q.mine +",
    ),
    Mutation("an owner fills all", "shared/admission.lua", "if share > 0 and mine > 0", "if false and mine > 0"),
    Mutation(
        "others' results make an owner room",
        "shared/admission.lua",
        "if not owner or who == owner",
        "if true or who == owner",
    ),
    Mutation(
        "queued texts free no memory",
        "shared/admission.lua",
        "math.min(gone, worked_off(q, n))",
        "gone",
    ),
    Mutation("a full Redis does not say when", "submit.lua", "tostring(results_gone(t.bytes + t.reserve))", "'1e6'"),
    Mutation(
        "submit grows a full Redis",
        "submit.lua",
        "  local refusal = store_task(",
        "  allowed_when_full()\n  local refusal = store_task(",
    ),
    Mutation("claim stops when full", "shared/claiming.lua", "call('ZREM', LINGER, worker)            --", "--"),
    Mutation("joining stops when full", "submit.lua", "  allowed_when_full()\n", ""),
    # Lists
    _cut("a forgotten task stays listed", "shared/forgetting.lua", "call('ZREM', tasks_key(f[1]), id)\n"),
    Mutation(
        "a list expires under an open task", "shared/enqueue.lua", "call('PERSIST', tasks_key(owner))", "local _ = 1"
    ),
    Mutation(
        "a list lives for ever", "shared/ending.lua", "    call('PEXPIRE', tasks_key(t.owner), t.ttl)\n", "", quick=True
    ),
    Mutation("a list expires with the first end", "shared/ending.lua", "call('DECR', open_key(t.owner)) <= 0", "true"),
    Mutation("what nobody lists counts as open", "shared/ending.lua", "if t.listed and call('DECR'", "if call('DECR'"),
    Mutation("everything is listed", "submit.lua", "listed = listed == '1'", "listed = true"),
    Mutation("a list holds what is gone", "list.lua", "call('ZREM', tasks_key(owner), id)", "out[1] = id"),
    Mutation("lists fill up with what is gone", "shared/enqueue.lua", "call('EXISTS', task_key(other)) == 0", "false"),
    # One model under a name
    Mutation("an emptied Redis serves two models", "shared/claiming.lua", "and stamp ~= '' then", "and false then"),
    Mutation("any model gets work", "shared/claiming.lua", "if serves and serves ~= stamp then", "if false then"),
    Mutation(
        "half done by another model goes on", "shared/claiming.lua", "if f[8] and f[8] ~= serves then", "if false then"
    ),
    Mutation("the model before commits", "register.lua", "do drop_claim(token, true) end", "do local _ = token end"),
    Mutation("a revision stands for its last vectors", "reference.lua", "HSETNX", "HSET"),
    Mutation("an exchange is somebody's fault", "register.lua", "drop_claim(token, true)", "drop_claim(token, false)"),
    Mutation("two models are let in", "register.lua", "if other ~= worker then return 0 end", ""),
    Mutation(
        "nobody remembers the model",
        "shared/ending.lua",
        "if serves then change('made_by'",
        "if false then change('made_by'",
    ),
    Mutation("a replaced worker counts", "beat.lua", "then return 0 end", "then end"),
    Mutation(
        "what another model left has not failed", "shared/ending.lua", "'failed', int(failed), 'ended_by'", "'ended_by'"
    ),
    # What worked and failed at once
    Mutation("lose refunds", "lose.lua", "drop_claim(arg(1), false)", "drop_claim(arg(1), true)"),
    Mutation("lose wakes nobody", "lose.lua", "return ready() > 0 and wake() or 0", "return 0"),
    # Files
    Mutation(
        "a file's owner is ignored by the account", "shared/quota.lua", "R .. ':files:' .. owner", "R .. ':files:x'"
    ),
    Mutation(
        "expired files count",
        "shared/quota.lua",
        "call('GET', account.bytes) or 0) - freed",
        "call('GET', account.bytes) or 0)",
    ),
    Mutation(
        "expired files are never counted out",
        "file_write.lua",
        "for _, entry in ipairs(gone) do forget_file(account, entry) end\nkeep(account)\n",
        "keep(account)\n",
    ),
    Mutation(
        "a deleted file keeps its bytes",
        "shared/quota.lua",
        "== 1 then call('DECRBY', account.bytes, size) end",
        "== 1 then end",
    ),
    Mutation(
        "a repeated record replaces the first", "file_write.lua", "if #record > 0 then return {'ok', record} end", ""
    ),
    Mutation(
        "a file without end ends with the others",
        "file_write.lua",
        "elseif ending < number then call('PERSIST', name)",
        "",
    ),
    Mutation(
        "an empty account stays",
        "file_write.lua",
        "if number == 0 then call('UNLINK', name)",
        "if false then call('UNLINK', name)",
    ),
    Mutation("whoever has too much goes on", "batch_create.lua", "if over then return over end", ""),
    Mutation("whoever has too much ingests", "ingestion_create.lua", "if over then return over end", ""),
    Mutation("a file never expires", "file_write.lua", "call('PEXPIRE', key, int(for_ms))", ""),
    Mutation("a backlog of expired files counts", "shared/quota.lua", "#gone < LOOKED_AT_FILES", "true"),
    Mutation("the page after begins with its cursor", "file_list.lua", "rank + 1", "rank"),
    Mutation("a deleted cursor begins anew", "file_list.lua", "before = before + 1", "before = 0"),
    Mutation("a page of every purpose", "file_list.lua", "(purpose == '' or kind == purpose)", "true"),
    Mutation("a page never says that there is more", "file_list.lua", "page[1] = ids[looked]", "page[1] = false"),
    Mutation("a page looks at everything", "file_list.lua", "first + look - 1", "-1"),
    # API keys
    Mutation("keys are read each time", "key_read.lua", "if stamp ~= arg(1) then", "if true then"),
    Mutation(
        "a change of a key stays unseen",
        "key_write.lua",
        "if stamp ~= '' then call('HSET'",
        "if false then call('HSET'",
    ),
    Mutation("the last change of a key wins", "key_write.lua", "if now ~= before then return 'changed' end\n", ""),
    Mutation("a repeated change is a conflict", "key_write.lua", "if now == after then return 'ok' end", ""),
    Mutation("the stamp of deleted keys is a key", "key_write.lua", "- call('HEXISTS', key, '@stamp') ", ""),
    Mutation(
        "a purge without keys closes the service",
        "key_write.lua",
        "if stamp ~= '' then call('HSET'",
        "if true then call('HSET'",
    ),
    Mutation("a full Redis keeps a revoked key alive", "key_write.lua", "allowed_when_full()", ""),
    # Figures
    _cut("nobody counts how long tasks took", "shared/ending.lua", "  note_end(t.lane, state, NOW - t.created)\n"),
    Mutation("a task on a bound is above it", "shared/ending.lua", "math.max(took_ms - 1, 0)", "took_ms"),
    Mutation("a long task has a bound", "shared/ending.lua", "HIGHEST + 1)", "99)"),
    _cut(
        "texts of another model are lost", "shared/ending.lua", "    count_items(f[2], 0, failed - tonumber(f[12]))\n"
    ),
    Mutation("the last task alone is counted", "shared/accounts.lua", "(changes[name] or 0) + n", "n"),
    Mutation("the oldest is looked for everywhere", "overview.lua", "0, OWNERS - 1", "0, -1"),
    Mutation("the oldest is looked for in every task", "overview.lua", "0, TASKS - 1", "0, -1"),
    Mutation("what is taken back counts", "shared/ingestions.lua", " and tonumber(pair[2]) > 0 then", " then"),
    Mutation(
        "a repeated setback counts twice", "shared/ingestions.lua", "call('HGET', key, pair[1]) ~= pair[2]", "true"
    ),
    Mutation("a batch that stays ends anew", "batch_move.lua", "if f[1] ~= to then count_of", "if true then count_of"),
    # Batches
    Mutation("a batch moves from any state", "batch_move.lua", "if not fits then", "if not f[1] then"),
    Mutation("a batch that stays is there anew", "batch_move.lua", "if f[1] ~= to then call(", "if true then call("),
    Mutation(
        "an open batch ends with its window", "batch_create.lua", "math.max(tonumber(ttl_ms), PATIENCE_MS)", "ttl_ms"
    ),
    Mutation("an ended batch stays for ever", "batch_move.lua", "if arg(3) == '1' then", "if false then"),
    Mutation("moving a batch stops when full", "batch_move.lua", "allowed_when_full()\n", ""),
    Mutation(
        "a record is stored twice",
        "shared/records.lua",
        "':' .. id) == 1 then return {'ok'",
        "':' .. id) == 2 then return {'ok'",
    ),
    Mutation("a key takes any request", "shared/records.lua", "if of ~= digest then return {'conflict'} end", ""),
    Mutation(
        "a list of batches never ends", "batch_create.lua", "if call('PTTL', name) < life_ms then", "if false then"
    ),
    Mutation("a page begins with its cursor", "owned_list.lua", "'+' or '(' .. arg(2)", "'+' or '[' .. arg(2)"),
    Mutation(
        "a page of batches never says more",
        "owned_list.lua",
        "local more = #page > limit or not ended",
        "local more = false",
    ),
    Mutation("a page of batches looks at all", "owned_list.lua", "and left > 0", ""),
    Mutation("what was not looked at is not there", "owned_list.lua", "or not ended", ""),
    Mutation("two ingestions of one moment are equal", "ingestion_create.lua", "-order') or 0) + 1", "-order') or 0)"),
    Mutation("a Redis that begins anew counts from one", "ingestion_create.lua", "math.max(NOW, ", "math.max(0, "),
    Mutation("another Redis takes a storage over", "storage_id.lua", "call('EXISTS', key) == 0", "true"),
    Mutation("no Redis takes a storage over", "storage_id.lua", "arg(2) == '1' or", ""),
    # Deleting records
    Mutation("what is open is deleted", "record_delete.lua", "or not ENDED[f[1]] ", ""),
    _cut(
        "what was deleted stays in the list",
        "record_delete.lua",
        "call('ZREM', R .. ':' .. kinds .. ':' .. f[2], id)\n",
    ),
    Mutation("a key leads to what was deleted", "record_delete.lua", "then call('UNLINK', alias_at) end", "then end"),
    Mutation(
        "a deletion frees another one's key",
        "record_delete.lua",
        "and string.match(call('GET', alias_at) or '', '^%S+') == id then",
        "then",
    ),
    _cut("nobody removes what was deleted", "record_delete.lua", "call('SADD', R .. ':open-' .. kinds, id)\n"),
    _cut("a deletion wakes no step", "record_delete.lua", "wake_steps()\n"),
    _cut("a full Redis deletes nothing", "record_delete.lua", "allowed_when_full()\n"),
    _cut("a batch goes before its traces", "batch_close.lua", "  if arg(2) == '0' then return 0 end"),
    _cut("an ingestion goes before its traces", "ingestion_close.lua", "  if arg(2) == '0' then return 0 end"),
    _cut("a deleted batch stays", "batch_close.lua", "  call('UNLINK', key)\n"),
    Mutation(
        "a deleted ingestion leaves its pages",
        "ingestion_close.lua",
        "call('UNLINK', key, R .. ':ingestion-waiting:' .. id, R .. ':ingestion-closed:' .. id)",
        "call('UNLINK', key)",
    ),
    # Why something waits
    Mutation(
        "what is given back is a death",
        "shared/suspects.lua",
        "    return\n  end\n  call('HSET'",
        "  end\n  call('HSET'",
    ),
    Mutation("every death is the first", "shared/suspects.lua", "int(math.max(u.attempts, ", "int(math.max(1, "),
    Mutation("an ended task stands somewhere", "standing.lua", "if f[4] and OPEN[f[4]] then", "if f[4] then"),
    Mutation("dead workers serve", "standing.lua", "'(' .. int(NOW), '+inf'", "'-inf', '+inf'"),
    Mutation("the dead are absent since earlier", "standing.lua", "died and int", "nil and int"),
    Mutation("a queue forgets since when it is alone", "shared/wakeup.lua", "(left or #gone > 0)", "left"),
    Mutation("a worker that stops leaves no date", "shared/wakeup.lua", "(left or #gone > 0)", "#gone > 0"),
    Mutation("the first of several takes all with it", "shared/wakeup.lua", " and call('EXISTS', WORKERS) == 0", ""),
    Mutation("every stop is the last", "retire.lua", "prune_workers(lived)", "prune_workers(true)"),
    Mutation("records that are gone stay open", "open_list.lua", "else call('SREM'", "else call('SISMEMBER'"),
    Mutation("a closed batch stays open", "batch_close.lua", "return call('SREM'", "return call('SISMEMBER'"),
    Mutation(
        "the next batch is always let in",
        "batch_create.lua",
        "if max_open >= 0 and open >= max_open then",
        "if false then",
    ),
    Mutation(
        "batches that are gone count", "batch_create.lua", "call('ZCARD', running) - lost", "call('ZCARD', running)"
    ),
    Mutation("reserved memory takes batches", "shared/accounts.lua", "tonumber(call('GET', RESERVED) or 0)", "0"),
    Mutation("a list of records keeps its dead", "shared/records.lua", "call('ZRANDMEMBER', list, -2)", "{}"),
    Mutation("an ended batch counts as open", "batch_move.lua", "call('ZREM', R .. ':batches-open:' .. f[3], id)", ""),
    Mutation(
        "a list ends before its batches", "batch_move.lua", "if left >= 0 and left <", "if left > 0 and left < 0 *"
    ),
    Mutation(
        "who has gone goes first",
        "shared/claiming.lua",
        "goes_behind(id, tonumber(f[2]), tonumber(f[11]), line, owner)",
        "false",
    ),
    # Limits of keys
    _cut(
        "an accepted task takes no tokens",
        "submit.lua",
        "  if t.limits and t.limits.tokens_per_minute then take_from(token_bucket(t.owner, "
        "t.limits.tokens_per_minute), t.cost) end\n",
    ),
    Mutation("tokens come back at once", "shared/limits.lua", "b.full = b.full + n * b.each", "b.full = b.full"),
    Mutation(
        "a clock that went back locks a key out",
        "shared/limits.lua",
        "math.min(math.max(full, NOW), NOW + window_ms)",
        "math.max(full, NOW)",
    ),
    Mutation("what is saved up has no end", "shared/limits.lua", "math.max(full, NOW)", "full"),
    Mutation("any number of tokens may wait", "shared/limits.lua", "q.mine + cost > limits.queued_tokens", "false"),
    Mutation(
        "batches are no open jobs",
        "shared/limits.lua",
        "call('ZCOUNT', R .. ':batches-open:' .. owner",
        "0 * call('ZCOUNT', R .. ':batches-open:' .. owner",
    ),
    Mutation("ingestions are no open jobs", "shared/limits.lua", "call('SCARD', R .. ':ingesting:' .. owner)", "0"),
    # Traces
    _cut(
        "a task forgets its trace",
        "shared/enqueue.lua",
        "  set(t.trace ~= '', 'trace', t.trace)\n",
    ),
    Mutation("a claim hands out no trace", "shared/claiming.lua", "f[6], f[9], owner)", "f[6], nil, owner)"),
    Mutation("a claim does not say whose a text is", "shared/claiming.lua", "f[6], f[9], owner)", "f[6], f[9], '')"),
    Mutation(
        "a repeated claim hands out no trace", "shared/claiming.lua", "nil, f[2], f[3], f[4])", "nil, f[2], nil, f[4])"
    ),
    Mutation(
        "a repeated claim does not say whose a text is", "shared/claiming.lua", "f[2], f[3], f[4])", "f[2], f[3], '')"
    ),
    # Purges
    Mutation(
        "a purge takes aliases of others",
        "purge_sweep.lua",
        "string.sub(name, 1, #owner + 1) == owner .. ':'",
        "string.sub(name, 1, #owner) == owner",
    ),
    _cut("a purged owner has no mark", "purge_sweep.lua", "call('ZADD', R .. ':purged', 'NX', int(NOW), owner)\n"),
    Mutation("a round that has met something is clean", "purge_sweep.lua", "met and 0 or 1, tasks", "1, tasks"),
    Mutation("a cursor outlives its server", "purge_sweep.lua", "if f[1] ~= server then", "if not f[1] then"),
    Mutation("nobody works for what is purged", "purge_sweep.lua", "busy[record[2]] and 1 or 0", "0"),
    _cut(
        "what is purged goes on",
        "purge_sweep.lua",
        "    call('HSET', key, 'status', 'cancelled', 't_cancelled', int(NOW))\n",
    ),
    Mutation(
        "turns of a purged owner stay",
        "purge_close.lua",
        "call('HDEL', S, 'pass_' .. line .. ':' .. owner, 'tvt_' .. line .. ':' .. owner)",
        "call('HDEL', S, 'pass_' .. line .. ':' .. owner)",
    ),
    Mutation("expired results of a purged owner stay", "purge_close.lua", "drop_results(scanned[2][i])", "i = i"),
    _cut(
        "a step removes what is being purged",
        "purge_sweep.lua",
        "  call('SREM', R .. ':open-' .. KINDS[kind], id)  -- or a step would remove the record before its objects\n",
    ),
    _cut("what is purged leaves an entry", "purge_record.lua", "no_litter(kinds .. '/' .. id .. '/ ' .. owner)\n"),
    # The sweep
    Mutation("what has ended is litter at once", "shared/litter.lua", "int(at + GRACE_MS)", "int(at)"),
    Mutation("litter is never due", "shared/litter.lua", "int(at + GRACE_MS)", "int(at + 100 * GRACE_MS)"),
    Mutation("what is not due is swept", "litter_read.lua", "'-inf', int(NOW)", "'-inf', '+inf'"),
    Mutation("the sweep forgets what was tried again", "litter_done.lua", "or tonumber(due) > NOW ", ""),
    Mutation("what cannot be deleted is forgotten", "litter_done.lua", "tonumber(arg(3))", "0"),
    Mutation("what comes after the sweep stays", "litter_done.lua", "if left > 0 then", "if false then"),
    _cut("an ended batch is no litter", "batch_move.lua", "  litter('batches/' .. id .. '/ ' .. f[3], NOW)\n"),
    _cut(
        "an ended ingestion is no litter",
        "shared/ingestions.lua",
        "    litter('ingestions/' .. id .. '/ ' .. f[3], NOW)\n",
    ),
    _cut("one tried again is litter", "shared/ingestions.lua", "    no_litter('ingestions/' .. id .. '/ ' .. f[3])\n"),
    _cut("a deleted record is no litter", "record_delete.lua", "litter(kinds .. '/' .. id .. '/ ' .. f[2], NOW)\n"),
    _cut("an expired file is no litter", "file_write.lua", "  litter(stored .. ' ' .. owner, NOW + for_ms)\n"),
    _cut(
        "a deleted file is litter",
        "file_write.lua",
        "  no_litter(f[3] .. ' ' .. f[1])          -- its bytes were deleted before\n",
    ),
)
