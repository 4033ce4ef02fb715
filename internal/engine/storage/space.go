package storage

// spaceEvery is how many bytes are written between two looks at the free space.
const spaceEvery = 16 << 20

// spaceAfterGroup looks at the free space now and then, on the writer's loop.
func (s *Store) spaceAfterGroup() {
	if s.w.sinceSpace += int64(len(s.w.buf)); s.w.sinceSpace >= spaceEvery {
		s.w.sinceSpace = 0
		s.checkSpace()
	}
}

// checkSpace blocks publishers below the low-water mark, before the disk is full, and lets them go on above the high one.
func (s *Store) checkSpace() {
	free, err := s.env.FS.Free(s.dir)
	if err != nil {
		return
	}
	s.mu.RLock()
	for _, f := range s.spares {
		if !f.reserve {
			free += uint64(s.opt.FileSize)
		}
	}
	s.mu.RUnlock()
	if s.w.cur != nil {
		free += uint64(max(0, s.opt.FileSize-s.w.cur.size))
	}
	s.setHealth(func(h *Health) {
		switch {
		case int64(free) < s.opt.LowWater && !h.Closed:
			h.Blocked, h.Class, h.Reason = true, Full, "the free space is below the low-water mark"
		case int64(free) >= s.opt.HighWater && h.Blocked && !s.w.parked:
			h.Blocked = false
			if h.Class == Full {
				h.Class, h.Reason = Healthy, ""
			}
		}
		h.Free = free >> 20 << 20 // whole MiB, so that a listener is not told of every file
	})
	if int64(free) >= s.opt.HighWater {
		s.fillReserve()
	}
}
