// The function that a fuzzer calls. Only `Tests/fuzz` defines the condition; in the tests nothing is here.
#if FUZZ_FORMS
    import Glibc

    /// One program for several targets, because it takes long to build: its name says which.
    private let programme = FormProgramme.allCases.first { CommandLine.arguments[0].hasSuffix("/" + $0.rawValue) }

    /// One input of the fuzzer: ends the process where something is found.
    @_cdecl("LLVMFuzzerTestOneInput")
    public func fuzzForms(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
        do {
            guard let programme else { throw FormFinding(description: "the program has the name of no target") }
            try programme.run(Array(UnsafeBufferPointer(start: start, count: count)))
        } catch {
            print("FINDING: \(error)")
            fflush(nil)
            abort()
        }
        return 0
    }
#endif
