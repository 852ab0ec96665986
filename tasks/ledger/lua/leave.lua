-- A drain ends.   own: worker warm   reply: ring
-- warm: it did work, so the bell is rung once more and a trickle finds the worker lingering again.
allowed_when_full()
call('ZREM', LINGER, arg(1))
if arg(2) == '1' then return ring() end
return ready() > 0 and wake() or 0
