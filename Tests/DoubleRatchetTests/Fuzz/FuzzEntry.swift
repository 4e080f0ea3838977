// The function that a fuzzer calls. Only `Tests/fuzz` defines the condition; in the tests nothing is here.
#if FUZZ_RATCHET
    import Glibc

    /// One program for two targets, because it takes minutes to build: `conversations` is another name of `bytes`.
    private let isConversations = CommandLine.arguments[0].hasSuffix("/conversations")

    /// One input of the fuzzer: ends the process where something is found.
    @_cdecl("LLVMFuzzerTestOneInput")
    public func fuzzOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
        let input = Array(UnsafeBufferPointer(start: start, count: count))
        do {
            // The first byte chooses: every fourth conversation is one with a peer that lies.
            if !isConversations {
                try ByteProgramme.run(input)
            } else if let first = input.first, first & 0x18 == 0x18 {
                try HostileProgramme.run(input)
            } else {
                try ConversationProgramme.run(input)
            }
        } catch {
            print("FINDING: \(error)")
            fflush(nil)
            abort()
        }
        return 0
    }
#endif
