-- A drain ends.   own: worker warm   reply: bell due
-- warm: it did work, so the bell is rung once more and a trickle finds the worker lingering again.
-- uses: turns wakeup
allowed_when_full()
call('ZREM', LINGER, arg(1))
if arg(2) == '1' then return bell_due() end
return ready() > 0 and wake() or 0
