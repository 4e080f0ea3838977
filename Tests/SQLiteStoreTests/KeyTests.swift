import Glibc
import SQLiteStore
import StorePort
import Testing

@Suite struct KeyTests {
    private let scratch = Scratch()

    @Test func firstStartMakesKeyAndStoreForTheirOwnerOnly() throws {
        try scratch.with { #expect($0.generation == 1) }
        #expect(mode(scratch.data) == 0o700)
        #expect(mode(scratch.keyPath) == 0o600)
        #expect(mode(scratch.store) == 0o600)
        #expect(bytes(scratch.keyPath).count == 32)
        #expect(bytes(scratch.keyPath) != [UInt8](repeating: 0, count: 32))
        let key = try StorageKey.read(scratch.key)
        #expect(key.withBytes { $0 } == bytes(scratch.keyPath))
    }

    @Test func theFilesBesideTheStoreAreForTheirOwnerOnly() throws {
        let store = try scratch.open()
        #expect(mode(scratch.store + "-wal") == 0o600)
        #expect(mode(scratch.store + "-shm") == 0o600)
        #expect(mode(scratch.data + "/generation") == 0o600)
        withExtendedLifetime(store) {}
    }

    @Test func aFirstStartThatWasCutShortGoesOn() throws {
        run("mkdir", "-p", scratch.data)
        write([1, 2, 3], scratch.store + ".new")
        write([UInt8](repeating: 5, count: 32), scratch.keyPath)
        try scratch.with { #expect($0.generation == 1) }
        #expect(bytes(scratch.keyPath) == [UInt8](repeating: 5, count: 32))
        #expect(!exists(scratch.store + ".new"))
    }

    // In processes of their own: others read the environment at any time.

    @Test func aKeyInTheEnvironmentInEitherNotation() async {
        await #expect(processExitsWith: .success) {
            let scratch = Scratch()
            let key = (0..<32).map { UInt8($0 * 8) }
            setenv("PAWL_TEST_KEY_A", "AAgQGCAoMDhASFBYYGhweICIkJigqLC4wMjQ2ODo8Pg=", 1)
            #expect(try StorageKey.read(.environment("PAWL_TEST_KEY_A")).withBytes { $0 } == key)
            setenv("PAWL_TEST_KEY_B", key.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined(), 1)
            #expect(try StorageKey.read(.environment("PAWL_TEST_KEY_B")).withBytes { $0 } == key)
            do { _ = try SQLiteStore.open(directory: scratch.data, key: .environment("PAWL_TEST_KEY_A")) }
            #expect(!exists(scratch.keyPath))
            #expect(scratch.refusal(.environment("PAWL_TEST_KEY_B")) == nil)
        }
    }

    @Test func badKeysInTheEnvironment() async {
        await #expect(processExitsWith: .success) {
            let texts = ["", "AAgQ", "zz", String(repeating: "A", count: 45), String(repeating: "g", count: 64)]
            for text in texts {
                setenv("PAWL_TEST_KEY", text, 1)
                guard case .unusableKey(let message) = Scratch().refusal(.environment("PAWL_TEST_KEY")) else {
                    Issue.record("\(text) is taken")
                    continue
                }
                #expect(message.contains("openssl rand -base64 32"))
                #expect(text.count < 3 || !message.contains(text))
            }
        }
    }

    @Test func anUnsetVariable() {
        #expect(scratch.refusal(.environment("PAWL_TEST_UNSET"))?.message.contains("is not set") == true)
        #expect(!exists(scratch.store))
    }

    @Test func aKeyOfAnotherLength() throws {
        try scratch.with { _ in }
        write([UInt8](repeating: 1, count: 31), scratch.keyPath)
        guard case .unusableKey(let message) = scratch.refusal() else {
            Issue.record("taken")
            return
        }
        #expect(message.contains("31 bytes, not 32"))
        #expect(message.contains("pawl restore"))
    }

    @Test(arguments: [mode_t(0o640), 0o604, 0o660]) func aKeyThatOthersCanRead(_ wide: mode_t) throws {
        try scratch.with { _ in }
        chmod(scratch.keyPath, wide)
        guard case .unusableKey(let message) = scratch.refusal() else {
            Issue.record("taken")
            return
        }
        #expect(message.contains("chmod 600 \(scratch.keyPath)"))
        chmod(scratch.keyPath, 0o600)
        #expect(scratch.refusal() == nil)
    }

    @Test func aKeyThatIsNoFile() throws {
        try scratch.with { _ in }
        run("mv", scratch.keyPath, scratch.keyPath + ".old")
        run("mkdir", scratch.keyPath)
        guard case .unusableKey(let message) = scratch.refusal() else {
            Issue.record("taken")
            return
        }
        #expect(message.contains("is not a file"))
    }

    @Test(.enabled(if: geteuid() != 0, "root reads everything")) func aKeyThatCannotBeRead() throws {
        try scratch.with { _ in }
        chmod(scratch.keyPath, 0)
        guard case .unusableKey(let message) = scratch.refusal() else {
            Issue.record("taken")
            return
        }
        #expect(message.contains("chown"))
    }

    @Test func aKeyIsNeverPrinted() {
        let key = StorageKey([UInt8](repeating: 0xAB, count: 32))
        var dumped = ""
        dump(key, to: &dumped)
        for text in ["\(key)", String(reflecting: key), dumped] {
            #expect(!text.contains("171") && !text.lowercased().contains("abab"))
        }
    }
}
