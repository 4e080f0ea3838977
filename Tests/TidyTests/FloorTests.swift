import Foundation
import TestThreads
import Testing

/// The floors of Sources/ARCHITECTURE.md, compared with the package manifest and with what the files import.
@Suite(.blocking) struct FloorTests {
    /// A target as `swift package describe` prints it.
    struct Target: Decodable {
        var name: String
        var path: String
        var type: String
        var targetDependencies: [String]?
        var productDependencies: [String]?

        enum CodingKeys: String, CodingKey {
            case name, path, type
            case targetDependencies = "target_dependencies"
            case productDependencies = "product_dependencies"
        }

        var dependencies: Set<String> { Set((targetDependencies ?? []) + (productDependencies ?? [])) }
    }

    private struct Description: Decodable { var targets: [Target] }

    /// From the bottom to the top. A target imports targets of its own floor and of those below.
    static let floors: [[String]] = [
        [
            "CJemalloc", "CLibcrypto", "CLibpq", "CQRencode", "CSodium", "CTransports", "CZlib", "DoubleRatchet",
            "Envelope", "HTTPCodec", "IRCCodec", "JSONCodec", "OMEMO", "PeerConnection", "QRCode", "TransportCodec",
        ],
        ["CommitLoop", "Devices", "Ownership", "Protection", "Reports", "RequestQueue", "StorePort"],
        [
            "CallSignalling", "DeviceDirectory", "DeviceSessions", "IRCGateway", "JSONGateway", "Messenger", "Outbox",
            "Vault",
        ],
        [
            "CGStreamer", "CWebRTC", "HTTPServer", "IRCServer", "NIOSupport", "PostgresStore",
            "RequestQueueAsyncHTTP", "RequestQueueClient", "RequestQueueURLSession", "SQLiteKit", "SQLiteQueue",
            "SQLiteStore", "StoreBase", "TransportsClient", "TransportsCore", "TransportsService",
        ],
        [
            "MappingFile", "PawlConfiguration", "PawlMessenger", "PawlMessengerIRC", "PawlMessengerWebSocket",
            "PawlPeerToPeerTCP", "PawlPeerToPeerWebRTC", "pawl",
        ],
    ]

    /// The targets that belong to one chat protocol. None imports one of another protocol.
    static let protocols: [[String]] = [
        ["IRCCodec", "IRCGateway", "IRCServer", "PawlMessengerIRC"],
        ["HTTPCodec", "HTTPServer", "JSONCodec", "JSONGateway", "MappingFile"],
        ["OMEMO"],
    ]

    /// Modules of the system and the toolchain, by the lowest floor that may import them.
    static let systemModules: [String: Int] = [
        "Synchronization": 0, "Glibc": 3, "Musl": 3, "Darwin": 3, "Foundation": 3, "FoundationNetworking": 3,
        "Dispatch": 3,
    ]

    /// Wiping and the source of randomness need the C library.
    static let exceptions: [String: Set<String>] = ["DoubleRatchet": ["Glibc", "Musl", "Darwin"]]

    /// Described once for all tests: SwiftPM gets all dependencies for it.
    private static let described = Result { try describe() }

    private static func describe() throws -> [Target] {
        let scratch = FileManager.default.temporaryDirectory.appending(path: "pawl-describe-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: scratch) }
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        // A scratch folder of its own: the tests' build may hold the lock of the other.
        process.arguments = [
            "swift", "package", "--package-path", TidyTests.root.path, "--scratch-path", scratch.path, "describe",
            "--type", "json",
        ]
        let output = Pipe()
        process.standardOutput = output
        process.standardError = FileHandle.nullDevice
        try process.run()
        let data = output.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        return try JSONDecoder().decode(Description.self, from: data).targets
    }

    @Test func arrowsOnlyGoDown() throws {
        let targets = try Self.described.get().filter { $0.path.hasPrefix("Sources/") }
        #expect(Set(targets.map(\.name)) == Set(Self.floors.joined()))
        for (floor, names) in Self.floors.enumerated() {
            let reachable = Set(Self.floors[...floor].joined())
            for target in targets where names.contains(target.name) {
                let above = Set(target.targetDependencies ?? []).subtracting(reachable)
                #expect(above.isEmpty, "\(target.name) imports \(above.sorted()) of a floor above")
            }
        }
    }

    /// An application that links the queue, its store and `URLSession` links no NIO.
    @Test func theQueueForApplicationsNeedsNoNIO() throws {
        let targets = Dictionary(uniqueKeysWithValues: try Self.described.get().map { ($0.name, $0) })
        #expect(
            Self.linked(["RequestQueueURLSession", "SQLiteQueue"], targets) == [
                "RequestQueue", "RequestQueueClient", "RequestQueueURLSession", "SQLiteQueue", "SQLiteKit",
                "DequeModule", "HeapModule", "GRDB", "GRDBSQLite",
            ])
    }

    /// It needs libcurl, which the package of the program does not bring.
    @Test func theProgramLinksNoURLSession() throws {
        let targets = Dictionary(uniqueKeysWithValues: try Self.described.get().map { ($0.name, $0) })
        let linked = Self.linked(["pawl"], targets)
        var users: Set<String> = []
        for target in targets.values where target.path.hasPrefix("Sources/") {
            for file in TidyTests.files(target.path)
            where TidyTests.imports(file.text).contains("FoundationNetworking") { users.insert(target.name) }
        }
        #expect(users == ["RequestQueueURLSession"])
        #expect(linked.isDisjoint(with: users) && linked.contains("RequestQueueClient"))
    }

    /// Targets and products that a program with these targets links.
    private static func linked(_ names: [String], _ targets: [String: Target]) -> Set<String> {
        var (linked, left): (Set<String>, [String]) = ([], names)
        while let name = left.popLast() {
            guard linked.insert(name).inserted else { continue }
            left += (targets[name]?.dependencies ?? []).filter { !linked.contains($0) }
        }
        return linked
    }

    @Test func noProtocolImportsAnother() throws {
        let targets = Dictionary(uniqueKeysWithValues: try Self.described.get().map { ($0.name, $0) })
        for own in Self.protocols {
            let others = Set(Self.protocols.joined()).subtracting(own)
            for name in own {
                let target = try #require(targets[name])
                #expect(target.dependencies.isDisjoint(with: others), "\(name) knows another protocol")
            }
        }
    }

    /// The compiler accepts an import of what a dependency depends on, and a dependency that nobody imports.
    @Test func importsAreWhatTheManifestDeclares() throws {
        let targets = try Self.described.get()
        let executables = Set(targets.filter { $0.type == "executable" }.map(\.name))
        for target in targets where target.type != "system-target" && target.type != "system" {
            let floor = Self.floors.firstIndex { $0.contains(target.name) }
            var imported: Set<String> = []
            let files = TidyTests.files(target.path)
            // A target in C includes headers and imports no module.
            guard !files.isEmpty else { continue }
            for file in files {
                for module in TidyTests.imports(file.text) where module != target.name {
                    let lowest = Self.systemModules[module]
                    let isAllowed = floor.map { $0 >= lowest ?? 0 } ?? true
                    let isException = Self.exceptions[target.name]?.contains(module) == true
                    #expect(isAllowed || isException, "\(file.name) imports \(module)")
                    if lowest == nil, !["Testing", "PackageDescription"].contains(module) { imported.insert(module) }
                }
            }
            let undeclared = imported.subtracting(target.dependencies)
            #expect(
                undeclared.isEmpty, "\(target.name) imports \(undeclared.sorted()), which the manifest does not declare"
            )
            // Tests start programs that they do not import.
            let unused = target.dependencies.subtracting(imported).subtracting(executables)
            #expect(unused.isEmpty, "\(target.name) declares \(unused.sorted()), and no file imports them")
        }
    }

    /// Targets of C headers, which have no Swift.
    static let systemLibraries: Set = [
        "CJemalloc", "CLibcrypto", "CLibpq", "CQRencode", "CSodium", "CTransports", "CZlib",
    ]

    /// Floors 0 to 2 know no time, chance, file or thread.
    @Test(arguments: floors[...2].joined().filter { !systemLibraries.contains($0) })
    func logicIsPure(_ target: String) {
        let banned = [
            "Date()", "clock_gettime", "ContinuousClock", "SystemClock", ".random(", "FileManager", "fopen(", "Thread(",
            "Task {", "DispatchQueue", "print(", "Logger(",
        ]
        let files = TidyTests.files("Sources/\(target)")
        #expect(!files.isEmpty)
        for file in files {
            for word in banned where TidyTests.has(file.text, word) {
                Issue.record("\(file.name) uses \(word)")
            }
        }
    }
}
