import Glibc
import StorePort
import Testing

@testable import SQLiteStore
@testable import StoreBase

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
                let refusal = Scratch().refusal(.environment("PAWL_TEST_KEY"))
                #expect(refusal == .keyVariableUnreadable("PAWL_TEST_KEY"), "\(text)")
                #expect(text.count < 3 || refusal?.message.contains(text) == false)
            }
        }
    }

    @Test func anUnsetVariable() {
        #expect(scratch.refusal(.environment("PAWL_TEST_UNSET")) == .keyVariableUnset("PAWL_TEST_UNSET"))
        #expect(!exists(scratch.store))
    }

    @Test func aKeyOfAnotherLength() throws {
        try scratch.with { _ in }
        write([UInt8](repeating: 1, count: 31), scratch.keyPath)
        #expect(scratch.refusal() == .keyOfWrongLength(scratch.keyPath, length: 31))
    }

    @Test(arguments: [mode_t(0o640), 0o604, 0o660]) func aKeyThatOthersCanRead(_ wide: mode_t) throws {
        try scratch.with { _ in }
        chmod(scratch.keyPath, wide)
        #expect(scratch.refusal() == .openKey(scratch.keyPath, mode: wide))
        chmod(scratch.keyPath, 0o600)
        #expect(scratch.refusal() == nil)
    }

    @Test func aKeyThatIsNoFile() throws {
        try scratch.with { _ in }
        run("mv", scratch.keyPath, scratch.keyPath + ".old")
        run("mkdir", scratch.keyPath)
        #expect(scratch.refusal() == .keyIsNoFile(scratch.keyPath))
    }

    @Test(.enabled(if: geteuid() != 0, "root reads everything")) func aKeyThatCannotBeRead() throws {
        try scratch.with { _ in }
        chmod(scratch.keyPath, 0)
        let user = getpwuid(geteuid()).map { String(cString: $0.pointee.pw_name) } ?? "\(geteuid())"
        #expect(
            scratch.refusal() == .unreadableKey(scratch.keyPath, String(cString: strerror(EACCES)), user: user))
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
