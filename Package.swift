// swift-tools-version: 6.2
import PackageDescription

let settings: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
]

func library(_ name: String, _ dependencies: [Target.Dependency], exclude: [String] = []) -> Target {
    .target(name: name, dependencies: dependencies, exclude: exclude, swiftSettings: settings)
}

func tests(_ name: String, _ dependencies: [Target.Dependency], exclude: [String] = []) -> Target {
    .testTarget(name: name, dependencies: dependencies, exclude: exclude, swiftSettings: settings)
}

let nioCore: Target.Dependency = .product(name: "NIOCore", package: "swift-nio")
let nioPosix: Target.Dependency = .product(name: "NIOPosix", package: "swift-nio")
let nioHTTP1: Target.Dependency = .product(name: "NIOHTTP1", package: "swift-nio")
let nioWebSocket: Target.Dependency = .product(name: "NIOWebSocket", package: "swift-nio")
let nioHTTP2: Target.Dependency = .product(name: "NIOHTTP2", package: "swift-nio-http2")
let nioHPACK: Target.Dependency = .product(name: "NIOHPACK", package: "swift-nio-http2")
let nioTLS: Target.Dependency = .product(name: "NIOTLS", package: "swift-nio")
let nioSSL: Target.Dependency = .product(name: "NIOSSL", package: "swift-nio-ssl")
let crypto: Target.Dependency = .product(name: "Crypto", package: "swift-crypto")
let cryptoExtras: Target.Dependency = .product(name: "CryptoExtras", package: "swift-crypto")
let deque: Target.Dependency = .product(name: "DequeModule", package: "swift-collections")
let heap: Target.Dependency = .product(name: "HeapModule", package: "swift-collections")
let logging: Target.Dependency = .product(name: "Logging", package: "swift-log")
let lifecycle: Target.Dependency = .product(name: "ServiceLifecycle", package: "swift-service-lifecycle")
let argumentParser: Target.Dependency = .product(name: "ArgumentParser", package: "swift-argument-parser")
let configuration: Target.Dependency = .product(name: "Configuration", package: "swift-configuration")
let yams: Target.Dependency = .product(name: "Yams", package: "Yams")
let grdbSQLite: Target.Dependency = .product(name: "GRDBSQLite", package: "GRDB.swift")
let asyncHTTPClient: Target.Dependency = .product(name: "AsyncHTTPClient", package: "async-http-client")
let grdb: Target.Dependency = .product(name: "GRDB", package: "GRDB.swift")

let package = Package(
    name: "pawl",
    platforms: [.macOS(.v15)],
    products: [
        .executable(name: "pawl", targets: ["pawl"]),
        .library(name: "DoubleRatchet", targets: ["DoubleRatchet"]),
        .library(name: "RequestQueue", targets: ["RequestQueue", "SQLiteQueue"]),
        .library(name: "RequestQueueClient", targets: ["RequestQueueClient"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-nio", exact: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-http2.git", exact: "1.46.0"),
        .package(url: "https://github.com/apple/swift-nio-ssl", exact: "2.37.6"),
        .package(url: "https://github.com/apple/swift-crypto", exact: "4.5.2"),
        .package(url: "https://github.com/apple/swift-collections", exact: "1.6.0"),
        .package(url: "https://github.com/apple/swift-log", exact: "1.16.2"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", exact: "2.13.0"),
        .package(url: "https://github.com/apple/swift-argument-parser", exact: "1.8.2"),
        .package(url: "https://github.com/swift-server/async-http-client", exact: "1.37.0"),
        .package(url: "https://github.com/apple/swift-configuration", exact: "1.4.0", traits: []),
        .package(url: "https://github.com/jpsim/Yams", exact: "6.2.2"),
        .package(url: "https://github.com/groue/GRDB.swift", exact: "7.10.0"),
    ],
    targets: [
        // Floor 1: protocols. Bytes in, values out.
        .systemLibrary(
            name: "CLibcrypto", pkgConfig: "libcrypto", providers: [.apt(["libssl-dev"]), .brew(["openssl@3"])]),
        .systemLibrary(
            name: "CSodium", pkgConfig: "libsodium", providers: [.apt(["libsodium-dev"]), .brew(["libsodium"])]),
        library("DoubleRatchet", ["CLibcrypto", "CSodium", crypto]),
        library("Envelope", [nioCore]),
        library("IRCCodec", [nioCore]),
        library("JSONCodec", [nioCore]),
        library("QRCode", []),
        // Floor 2: logic. No socket, thread, file, clock, logger or random source.
        library("RequestQueue", [deque, heap], exclude: ["QUEUE.md"]),
        library("Protection", ["Envelope", "RequestQueue"]),
        library(
            "GatewayCore",
            [
                "Protection", "DoubleRatchet", "Envelope", "IRCCodec", "JSONCodec", "RequestQueue", nioCore, deque,
                crypto,
                cryptoExtras,
            ]),
        // Floor 3: adapters.
        library("SQLiteKit", [grdb, grdbSQLite]),
        library("SQLiteQueue", ["RequestQueue", "SQLiteKit", grdb]),
        library(
            "SQLiteStore",
            [
                "GatewayCore", "Protection", "Envelope", "RequestQueue", "SQLiteKit", "SQLiteQueue", grdb, grdbSQLite,
                crypto,
            ]),
        library(
            "GatewayNIO",
            [
                "GatewayCore", "Protection", "DoubleRatchet", "IRCCodec", "Envelope", "RequestQueue", nioCore, nioPosix,
                nioHTTP1,
                nioHTTP2, nioHPACK, nioTLS, nioSSL, deque, logging,
            ]),
        library("RequestQueueClient", ["RequestQueue", nioCore, nioPosix, nioHTTP1, nioSSL, asyncHTTPClient]),
        // Floor 4: the program.
        library("PawlConfiguration", [configuration, yams]),
        library("MappingFile", ["GatewayCore", "Protection", "JSONCodec", "PawlConfiguration", nioCore]),
        .executableTarget(
            name: "pawl",
            dependencies: [
                "DoubleRatchet", "Envelope", "GatewayCore", "Protection", "GatewayNIO", "IRCCodec", "JSONCodec",
                "MappingFile",
                "PawlConfiguration",
                "QRCode", "RequestQueue", "RequestQueueClient", "SQLiteKit", "SQLiteQueue", "SQLiteStore",
                asyncHTTPClient,
                nioCore,
                nioPosix, nioSSL, argumentParser, lifecycle, logging,
            ],
            swiftSettings: settings),
        // What tests and benchmarks use.
        .target(name: "PeerKit", path: "Tests/PeerKit", exclude: ["Matrix/Peers"], swiftSettings: settings),
        .target(name: "TestThreads", path: "Tests/TestThreads", swiftSettings: settings),
        .target(
            name: "CapableApp", dependencies: ["DoubleRatchet"], path: "Tests/CapableApp", swiftSettings: settings),
        .executableTarget(
            name: "ChatBackend",
            dependencies: ["PeerKit", nioCore, nioPosix, nioHTTP1, nioWebSocket, argumentParser],
            path: "Tests/ChatBackend", swiftSettings: settings),
        .target(
            name: "StoreConformance",
            dependencies: ["GatewayCore", "Protection", "DoubleRatchet", "Envelope", "RequestQueue"],
            path: "Tests/StoreConformance", swiftSettings: settings),
        .target(
            name: "QueueConformance", dependencies: ["RequestQueue", grdbSQLite], path: "Tests/QueueConformance",
            swiftSettings: settings),
        .executableTarget(
            name: "QueueVictim",
            dependencies: ["RequestQueue", "RequestQueueClient", "SQLiteQueue", "QueueConformance", asyncHTTPClient],
            path: "Tests/QueueVictim", swiftSettings: settings),
        .executableTarget(
            name: "Benchmarks",
            dependencies: [
                "DoubleRatchet", "Envelope", "GatewayCore", "Protection", "RequestQueue", "RequestQueueClient",
                "SQLiteQueue",
                "SQLiteStore", asyncHTTPClient, nioCore, nioPosix, nioSSL, argumentParser, grdbSQLite,
            ],
            path: "Tests/Benchmarks", exclude: ["RESULTS.md", "QueuePeers", "RatchetPeers"], swiftSettings: settings),
        // Tests, one target a module.
        tests(
            "DoubleRatchetTests", ["DoubleRatchet", "PeerKit", crypto, cryptoExtras],
            exclude: ["Peers", "Fuzz/compile", "Fuzz/Valgrind"]),
        tests("IRCCodecTests", ["IRCCodec", nioCore]),
        tests("JSONCodecTests", ["JSONCodec", "PeerKit", nioCore], exclude: ["Peers"]),
        tests("EnvelopeTests", ["Envelope"]),
        tests("QRCodeTests", ["QRCode", "PeerKit"]),
        tests("RequestQueueTests", ["RequestQueue", "QueueConformance"]),
        tests(
            "RequestQueueClientTests",
            [
                "RequestQueueClient", "RequestQueue", "SQLiteQueue", "QueueVictim", "PeerKit", asyncHTTPClient, crypto,
                nioCore, nioPosix, nioHTTP1,
            ]),
        tests(
            "GatewayCoreTests",
            [
                "GatewayCore", "Protection", "CapableApp", "DoubleRatchet", "Envelope", "IRCCodec", "JSONCodec",
                "RequestQueue",
                "StoreConformance", nioCore,
            ]),
        tests("PawlConfigurationTests", ["PawlConfiguration", yams]),
        tests(
            "MappingFileTests", ["MappingFile", "GatewayCore", "Protection", "JSONCodec", "PawlConfiguration", nioCore]),
        tests("PeerKitTests", ["PeerKit", "ChatBackend", "TestThreads"]),
        tests(
            "PeerTests",
            ["PeerKit", "TestThreads", "CapableApp", "ChatBackend", "RequestQueue", "SQLiteQueue", "pawl"],
            exclude: ["Golden"]),
        tests(
            "PawlTests",
            [
                "pawl", "Envelope", "GatewayCore", "Protection", "GatewayNIO", "PawlConfiguration", "PeerKit",
                "SQLiteStore",
                "TestThreads",
                argumentParser, logging,
            ]),
        tests("TidyTests", []),
        tests(
            "GatewayNIOTests",
            [
                "GatewayNIO", "GatewayCore", "Protection", "DoubleRatchet", "Envelope", "JSONCodec", "RequestQueue",
                "PeerKit",
                "TestThreads",
                nioCore, nioPosix, nioSSL,
                nioTLS, nioHPACK,
            ]),
        tests(
            "SQLiteQueueTests",
            [
                "SQLiteQueue", "SQLiteKit", "QueueConformance", "QueueVictim", "RequestQueue", "PeerKit", "TestThreads",
                grdb,
                grdbSQLite,
            ]),
        tests(
            "SQLiteStoreTests",
            [
                "SQLiteStore", "SQLiteQueue", "StoreConformance", "QueueConformance", "GatewayCore", "Protection",
                "DoubleRatchet",
                "Envelope", "RequestQueue", grdb, grdbSQLite, crypto,
            ]),
    ]
)
