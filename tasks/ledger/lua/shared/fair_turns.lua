-- Turns, by self-clocked fair queueing. A lane is one sorted set: task -> tag, the lowest is next. A tag is virtual time (that
-- of the task taken last) plus the cost of a piece for each open task of the owner in this lane: his share is split over them.
-- debt: what an owner's work took beyond its cost, charged to whatever he brings next to this queue.
-- uses: task_record
local function tag_of(t, cost)
  local a, _, open, debts = account(t[OWNER], t[IN_QUEUE], t[LANE])
  local debt = a[debts]
  a[debts] = 0
  return queue(t[IN_QUEUE])['v_' .. t[LANE]] + (cost + debt) * math.max(1, a[open])
end
