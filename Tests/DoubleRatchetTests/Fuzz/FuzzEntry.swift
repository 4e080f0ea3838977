// The functions that a fuzzer calls. Only `Tests/fuzz` defines one of the two conditions; in the tests nothing is here.
#if FUZZ_BYTES || FUZZ_CONVERSATIONS
    import Glibc

    /// One input of the fuzzer: ends the process where something is found.
    @_cdecl("LLVMFuzzerTestOneInput")
    public func fuzzOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
        let input = Array(UnsafeBufferPointer(start: start, count: count))
        do {
            #if FUZZ_BYTES
                try ByteProgramme.run(input)
            #else
                // The first byte chooses: every fourth conversation is one with a peer that lies.
                if let first = input.first, first & 0x18 == 0x18 {
                    try HostileProgramme.run(input)
                } else {
                    try ConversationProgramme.run(input)
                }
            #endif
        } catch {
            print("FINDING: \(error)")
            fflush(nil)
            abort()
        }
        return 0
    }
#endif
